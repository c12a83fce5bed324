//! A barrier that a failure opens.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where the workers of a run wait for each other. After [`cancel`](Self::cancel) nobody waits.
#[derive(Debug)]
pub(super) struct Meeting {
    members: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    round: u64,
    cancelled: bool,
}

/// The meeting does not take place: a member has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cancelled;

impl Meeting {
    /// A meeting of so many members.
    pub(super) fn new(members: usize) -> Self {
        Self { members, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until all members have arrived, each of which may then leave at its own time.
    pub(super) fn wait(&self) -> Result<(), Cancelled> {
        let mut state = self.lock();
        if state.cancelled {
            return Err(Cancelled);
        }
        let round = state.round;
        state.arrived += 1;
        if state.arrived == self.members {
            state.arrived = 0;
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round && !state.cancelled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // A meeting that has taken place cannot be cancelled any more.
        if state.round == round { Err(Cancelled) } else { Ok(()) }
    }

    /// Sends everyone home, now and from now on.
    pub(super) fn cancel(&self) {
        self.lock().cancelled = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn nobody_leaves_before_all_have_come() {
        let (meeting, arrived) = (Meeting::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        meeting.wait().unwrap();
                        assert!(arrived.load(Ordering::SeqCst) >= 3 * round);
                        meeting.wait().unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn a_cancelled_meeting_holds_nobody() {
        let meeting = Meeting::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| meeting.wait());
            meeting.cancel();
            assert_eq!(waiting.join().unwrap(), Err(Cancelled));
        });
        assert_eq!(meeting.wait(), Err(Cancelled));
        assert_eq!(meeting.wait(), Err(Cancelled));
    }
}
