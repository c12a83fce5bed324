//! A worker that is delayed, to measure the effect on the others.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A worker that waits in every step, on top of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    /// Its rank.
    pub worker: usize,
    /// How long it waits at the end of its part of each step.
    pub delay: Duration,
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.worker, self.delay.as_secs_f64())
    }
}

impl FromStr for Straggler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (worker, seconds) = text.split_once('=')?;
            let seconds = seconds.parse().ok()?;
            let delay = Duration::try_from_secs_f64(seconds).ok()?;
            Some(Self { worker: worker.parse().ok()?, delay })
        };
        read().ok_or_else(|| {
            format!("'{text}' is not a worker and its delay in seconds; give both, such as 3=0.2")
        })
    }
}
