//! The findings of the steps of a run.

use std::time::{Duration, Instant};

use crate::counts::Counts;

/// The counts of all tests, the names of failed steps, and the time of each step.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) counts: Counts,
    pub(crate) broken: Vec<&'static str>,
    pub(crate) times: Vec<(&'static str, Duration)>,
}

impl Report {
    /// Runs a step; returns whether it succeeded.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Counts) -> bool,
    ) -> bool {
        eprintln!("== {name}");
        let start = Instant::now();
        let succeeded = run(&mut self.counts);
        let took = start.elapsed();
        eprintln!("== {name}: {:.0} s", took.as_secs_f64());
        self.times.push((name, took));
        if !succeeded {
            self.broken.push(name);
        }
        succeeded
    }

    /// Adds the findings of steps that ran at the same time.
    pub(crate) fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.broken.extend(other.broken);
        self.times.extend(other.times);
    }
}
