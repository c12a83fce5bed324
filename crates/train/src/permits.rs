//! Permits to compute: as many workers compute at once as there are cores.

use std::sync::{Condvar, Mutex, PoisonError};

/// A counting semaphore that serves in the order of arrival, so no worker gets far ahead of
/// another.
#[derive(Debug)]
pub(crate) struct Permits {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// The ticket for the next arrival.
    last: u64,
    /// The ticket whose turn it is.
    first: u64,
}

/// A permit, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a>(&'a Permits);

impl Permits {
    /// A semaphore with this number of permits, at least one.
    pub(crate) fn new(permits: usize) -> Self {
        let queue = Queue { free: permits.max(1), last: 0, first: 0 };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// Waits for a permit.
    pub(crate) fn acquire(&self) -> Permit<'_> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let own = queue.last;
        queue.last += 1;
        while queue.free == 0 || queue.first != own {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.free -= 1;
        queue.first += 1;
        drop(queue);
        // Another permit may be free for the next in line.
        self.changed.notify_all();
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).free += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_workers_than_permits_compute() {
        let (permits, inside, most) = (Permits::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _permit = permits.acquire();
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(permits.queue.lock().unwrap().free, 2);
    }
}
