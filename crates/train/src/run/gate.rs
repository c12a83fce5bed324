//! As many workers compute at once as there are cores.

use std::sync::{Condvar, Mutex, PoisonError};

/// A counting semaphore. Whoever holds a permit has a core of its own, so that the time it measures
/// is that of a worker on its own machine.
#[derive(Debug)]
pub(super) struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A permit, given back when dropped.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a Gate);

impl Gate {
    /// A gate with so many permits, at least one.
    pub(super) fn new(permits: usize) -> Self {
        Self { free: Mutex::new(permits.max(1)), freed: Condvar::new() }
    }

    /// Waits for a permit.
    pub(super) fn enter(&self) -> Permit<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_than_the_permits_are_inside() {
        let (gate, inside, most) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _permit = gate.enter();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(*gate.free.lock().unwrap(), 2);
    }
}
