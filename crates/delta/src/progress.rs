//! Reports the progress of long operations, and stops them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// How far operations are, in bytes. Another thread reads it, and may stop them.
///
/// Operations find the progress of the thread that runs them, so none of them needs an argument for
/// it. [`Receiver::commit`](crate::Receiver::commit) does not report and cannot be stopped: it is
/// short, and weights must not stay partly written.
///
/// ```
/// use gradwire_delta::{Mirror, Progress, Receiver};
///
/// let progress = Progress::default();
/// std::thread::scope(|scope| {
///     let hashing = scope.spawn(|| progress.watch(|| Receiver::new(Mirror::default(), 1)));
///     while !hashing.is_finished() {
///         println!("{} of {} bytes", progress.done(), progress.total());
///         std::thread::sleep(std::time::Duration::from_millis(100));
///     }
/// });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
    /// The limit on `done`: an operation that reaches it stops.
    most: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { done: 0.into(), total: 0.into(), most: u64::MAX.into() }
    }
}

thread_local! {
    /// The progress of the operations of this thread.
    static CURRENT: RefCell<Option<Progress>> = const { RefCell::new(None) };
}

impl Progress {
    /// Runs operations of this crate on this thread; they report here.
    pub fn watch<R>(&self, operations: impl FnOnce() -> R) -> R {
        let _outer = Outer(CURRENT.replace(Some(self.clone())));
        operations()
    }

    /// The bytes that are done.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// The bytes of the whole, as far as they are known. An operation that reads weights twice
    /// counts them twice.
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed).max(self.done())
    }

    /// Says that `bytes` or more are to come. Operations say so, too, each for itself; before
    /// several of them it keeps the total from growing.
    pub fn expect(&self, bytes: u64) {
        self.0.total.fetch_max(self.done().saturating_add(bytes), Ordering::Relaxed);
    }

    /// Stops the operations: they end soon, with [`Error::Stopped`]. The one that runs has changed
    /// nothing then; of several in a row the earlier ones have ended as always.
    pub fn stop(&self) {
        self.stop_at(0);
    }

    /// As [`stop`](Self::stop), once `bytes` are done.
    pub fn stop_at(&self, bytes: u64) {
        self.0.most.fetch_min(bytes, Ordering::Relaxed);
    }
}

/// Restores the progress that watched before.
struct Outer(Option<Progress>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Says that the operation of this thread takes `bytes` or more from now on.
pub(crate) fn expect(bytes: u64) {
    CURRENT.with_borrow(|current| current.iter().for_each(|progress| progress.expect(bytes)));
}

/// Reports that the operation of this thread has done more bytes.
///
/// # Errors
/// If it is to stop.
pub(crate) fn advance(bytes: u64) -> Result<(), Error> {
    CURRENT.with_borrow(|current| {
        let Some(Progress(counts)) = current else { return Ok(()) };
        let done = counts.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        match done < counts.most.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Error::Stopped),
        }
    })
}

/// Ends the operation of this thread if it is to stop.
///
/// # Errors
/// As for [`advance`].
pub(crate) fn check() -> Result<(), Error> {
    advance(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_report_to_the_progress_of_their_thread() {
        let (outer, inner) = (Progress::default(), Progress::default());
        outer.watch(|| {
            outer.expect(30);
            expect(10);
            advance(10).unwrap();
            inner.watch(|| advance(7)).unwrap();
            std::thread::scope(|scope| scope.spawn(|| advance(1000)).join().unwrap()).unwrap();
            expect(15);
            assert_eq!((outer.done(), outer.total()), (10, 30));
            expect(25);
            assert_eq!(outer.total(), 35);
            outer.stop();
            assert!(matches!(check(), Err(Error::Stopped)));
        });
        assert!(check().is_ok());
        // What was not announced counts.
        assert_eq!((inner.done(), inner.total()), (7, 7));
    }
}
