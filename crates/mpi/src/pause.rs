//! Waiting for MPI, which cannot sleep until a message arrives.

use std::thread;
use std::time::Duration;

/// The number of initial polls, which only yield the processor.
const EAGER: u32 = 64;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

/// The pauses between polls: none at first, then longer and longer.
#[derive(Default)]
pub(crate) struct Pause {
    polls: u32,
}

impl Pause {
    /// Waits before the next poll.
    pub(crate) fn wait(&mut self) {
        self.polls += 1;
        match self.polls.checked_sub(EAGER) {
            None => thread::yield_now(),
            Some(longer) => thread::sleep((SHORTEST * (1 << (longer / 8).min(6))).min(LONGEST)),
        }
    }
}
