//! The findings of the steps of a run.

use std::process::ExitCode;
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

/// Prints the time of each step, failed tests, failed steps and counts. In continuous integration
/// skipped tests are a failure.
pub(crate) fn sum_up(report: &Report) -> ExitCode {
    let Report { counts, broken, times } = report;
    for (name, time) in times {
        println!("{name}: {:.0} s", time.as_secs_f64());
    }
    for failure in &counts.failures {
        println!("failed: {failure}");
    }
    for reason in &counts.skipped {
        println!("skipped: {reason}");
    }
    for step in broken {
        println!("broken: {step}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        counts.passed,
        counts.failed,
        counts.skipped.len() as u64 + counts.ignored
    );
    let skipped = !counts.skipped.is_empty() || counts.ignored > 0;
    let incomplete = std::env::var_os("CI").is_some() && skipped;
    if incomplete {
        println!(
            "broken: tests were skipped; set GRADWIRE_DATA to the folder with the data sets, install what the lines \
             above name, and provide a python3 with access to PyPI"
        );
    }
    if broken.is_empty() && !incomplete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
