//! A queue between two threads that allocates nothing once it has grown.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out, until it is closed.
#[derive(Debug)]
pub(super) struct Queue<T> {
    items: Mutex<Items<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Items<T> {
    queue: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let items = Items { queue: VecDeque::new(), closed: false };
        Self { items: Mutex::new(items), changed: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, Items<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an item; gives it back if the queue is closed.
    pub(super) fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.lock();
        if items.closed {
            return Err(item);
        }
        items.queue.push_back(item);
        drop(items);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next item; `None` when the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut items = self.lock();
        loop {
            if let Some(item) = items.queue.pop_front() {
                return Some(item);
            }
            if items.closed {
                return None;
            }
            items = self.changed.wait(items).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts no more items. The items in the queue stay.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Drops all items.
    pub(super) fn clear(&self) {
        let dropped = std::mem::take(&mut self.lock().queue);
        // Not under the lock: an item that is dropped may use the queue.
        drop(dropped);
    }
}
