//! A barrier that a failure cancels.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A barrier for the workers of a run. After [`cancel`](Self::cancel) no worker waits.
#[derive(Debug)]
pub(super) struct Barrier {
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    round: u64,
    cancelled: bool,
}

/// The wait was cancelled: a worker has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cancelled;

impl Barrier {
    /// A barrier for this number of workers.
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until all workers have arrived.
    pub(super) fn wait(&self) -> Result<(), Cancelled> {
        let mut state = self.lock();
        if state.cancelled {
            return Err(Cancelled);
        }
        let round = state.round;
        state.arrived += 1;
        if state.arrived == self.workers {
            state.arrived = 0;
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round && !state.cancelled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // A complete round can no longer be cancelled.
        if state.round == round { Err(Cancelled) } else { Ok(()) }
    }

    /// Ends every wait, now and from now on, with [`Cancelled`].
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
    fn no_worker_leaves_before_all_have_arrived() {
        let (barrier, arrived) = (Barrier::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        barrier.wait().unwrap();
                        assert!(arrived.load(Ordering::SeqCst) >= 3 * round);
                        barrier.wait().unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn a_cancelled_barrier_holds_no_worker() {
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| barrier.wait());
            barrier.cancel();
            assert_eq!(waiting.join().unwrap(), Err(Cancelled));
        });
        assert_eq!(barrier.wait(), Err(Cancelled));
        assert_eq!(barrier.wait(), Err(Cancelled));
    }
}
