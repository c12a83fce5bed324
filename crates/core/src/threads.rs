//! Threads that work side by side on the tensors of a group, and on one large tensor.

mod adding;
mod in_order;

use std::convert::Infallible;
use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use self::adding::Unit;
pub(crate) use self::in_order::InOrder;
use crate::parts::{MIN_DIVIDED, least};
use crate::workspace::{Helpers, ThreadBuffers, Workspace};

/// The least work that is worth starting another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// The fewest elements of a tensor that threads divide.
    divided: usize,
    /// The fewest elements of several tensors per thread.
    share: usize,
}

/// Encoding, at 5 to 20 GB/s in the cache.
pub(crate) const ENCODING: Work = Work { divided: MIN_DIVIDED, share: least(1 << 18, 1 << 10) };
/// Decoding, at 10 to 80 GB/s in the cache.
pub(crate) const DECODING: Work =
    Work { divided: least(1 << 22, MIN_DIVIDED), share: least(1 << 20, 1 << 10) };

/// The threads that encode or decode several tensors side by side, and the buffers of each.
///
/// One thread works on a tensor, unless the tensor has more than a thread's share of all elements
/// and at least a million elements, or four million to decode. Then threads share the pass that
/// checks its elements and, if the method allows it, encoding and decoding. Several tensors get a
/// thread for every 262,144 elements to encode, or 1,048,576 to decode, up to the given number.
/// Messages do not depend on the number of threads. Threads are started for every shared pass; none
/// waits in between.
#[derive(Debug)]
pub struct Threads {
    /// The buffers of the caller's thread. The other threads are the [`Helpers`] of its workspace.
    own: ThreadBuffers,
}

impl Threads {
    /// The most threads. Each has buffers from the start, and no machine has as many cores.
    pub const MOST: usize = Helpers::MOST + 1;

    /// This many threads, from 1 (the caller's) to [`MOST`](Self::MOST).
    pub fn new(count: usize) -> Self {
        let mut own = ThreadBuffers::default();
        own.workspace.helpers = Helpers::new(count.saturating_sub(1));
        Self { own }
    }

    /// Their number.
    pub fn count(&self) -> usize {
        1 + self.own.workspace.helpers.count()
    }

    /// Whether more than one thread would encode this many tensors with `elements` elements in
    /// total.
    pub fn share(&self, tensors: usize, elements: usize) -> bool {
        let least = if tensors > 1 { 2 * ENCODING.share } else { ENCODING.divided };
        self.count() > 1 && elements >= least
    }

    /// The buffers for the work on one tensor, which the threads share as [`Helpers`].
    pub(crate) fn buffers(&mut self) -> &mut ThreadBuffers {
        &mut self.own
    }

    /// Calls `work` for each job, in the order of the jobs as threads become free. `elements` is
    /// the total over all jobs.
    ///
    /// # Panics
    /// If a call of `work` panics. The caller's thread then does later work alone.
    pub(crate) fn each<T: Send>(
        &mut self,
        jobs: Vec<T>,
        elements: usize,
        kind: Work,
        work: impl Fn(T, &mut ThreadBuffers) + Sync,
    ) {
        let Ok(()) = self.try_each(jobs, elements, kind, |job, buffers| {
            work(job, buffers);
            Ok::<_, Infallible>(())
        });
    }

    /// As [`each`](Self::each), for work that can fail. Returns the error of the first job that
    /// failed.
    pub(crate) fn try_each<T: Send, E: Send>(
        &mut self,
        jobs: Vec<T>,
        elements: usize,
        kind: Work,
        work: impl Fn(T, &mut ThreadBuffers) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let mut helpers = std::mem::take(&mut self.own.workspace.helpers);
        let others = helpers.others.iter_mut().take((elements / kind.share).saturating_sub(1));
        let (own, jobs) = (&mut self.own, jobs.into_iter());
        let done = try_side_by_side(own, others, jobs, |job, buffers| work(job, buffers));
        self.own.workspace.helpers = helpers;
        done
    }
}

impl Helpers {
    /// Calls `work` for each job, by the helpers and the caller's thread.
    pub(crate) fn share<T: Send>(
        &mut self,
        jobs: impl Iterator<Item = T> + Send,
        work: impl Fn(T) + Sync,
    ) {
        side_by_side((), self.others.iter().map(|_| ()), jobs, |job, ()| work(job));
    }

    /// As [`share`](Self::share), for work that can fail. Returns the error of the first job that
    /// failed.
    pub(crate) fn try_share<T: Send, E: Send>(
        &mut self,
        jobs: impl Iterator<Item = T> + Send,
        work: impl Fn(T) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        try_side_by_side((), self.others.iter().map(|_| ()), jobs, |job, ()| work(job))
    }

    /// Appends the output of `put` for each job, in the order of the jobs. The caller's thread
    /// works with `own`; each helper with the part of its workspace that `other` returns.
    pub(crate) fn append<'a, T: Send, B: Send>(
        &'a mut self,
        mut own: B,
        other: impl Fn(&'a mut Workspace) -> B,
        jobs: impl ExactSizeIterator<Item = T> + Send,
        message: &mut Vec<u8>,
        put: impl Fn(T, &mut B, &mut Vec<u8>) + Sync,
    ) {
        let Self { others, lists } = self;
        if others.is_empty() {
            return jobs.for_each(|job| put(job, &mut own, message));
        }
        let count = jobs.len();
        lists.resize_with(count.max(lists.len()), Vec::new);
        lists.iter_mut().for_each(Vec::clear);
        let others = others.iter_mut().map(|buffers| other(&mut buffers.workspace));
        side_by_side(own, others, jobs.zip(&mut *lists), |(job, list), own| put(job, own, list));
        lists.iter().for_each(|list| message.extend_from_slice(list));
    }
}

/// As [`side_by_side`], for work that can fail. Returns the error of the first failed job in the
/// order of the jobs, whatever the number of threads.
pub(crate) fn try_side_by_side<T: Send, B: Send, E: Send>(
    own: B,
    others: impl Iterator<Item = B>,
    jobs: impl Iterator<Item = T> + Send,
    work: impl Fn(T, &mut B) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let first: Mutex<Option<(usize, E)>> = Mutex::new(None);
    side_by_side(own, others, jobs.enumerate(), |(at, job), own| {
        if let Err(error) = work(job, own) {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            if first.as_ref().is_none_or(|(before, _)| at < *before) {
                *first = Some((at, error));
            }
        }
    });
    let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
    first.map_or(Ok(()), |(_, error)| Err(error))
}

/// Calls `work` for each job, in the order of the jobs as threads become free. The caller's thread
/// works with `own`; each of `others` gets another thread, if there are enough jobs.
///
/// # Panics
/// If a call of `work` panics.
pub(crate) fn side_by_side<T: Send, B: Send>(
    mut own: B,
    others: impl Iterator<Item = B>,
    mut jobs: impl Iterator<Item = T> + Send,
    work: impl Fn(T, &mut B) + Sync,
) {
    let most = jobs.size_hint().1.unwrap_or(usize::MAX);
    let others: Vec<B> = others.take(most.saturating_sub(1)).collect();
    match others.is_empty() {
        true => jobs.for_each(|job| work(job, &mut own)),
        false => take_turns(own, others, &mut jobs, &work),
    }
}

/// [`side_by_side`] with others. Compiled once for each type of jobs and buffers, not for each
/// `work`.
fn take_turns<T: Send, B: Send>(
    mut own: B,
    others: Vec<B>,
    jobs: &mut (dyn Iterator<Item = T> + Send),
    work: &(dyn Fn(T, &mut B) + Sync),
) {
    let queue = Mutex::new(jobs);
    let work_on = |buffers: &mut B| {
        while let Some(job) = next(&queue) {
            work(job, buffers);
        }
    };
    let (count, others) = (others.len(), Mutex::new(others.into_iter()));
    let other = || {
        if let Some(mut buffers) = next(&others) {
            work_on(&mut buffers);
        }
    };
    beside(count, &other, &mut || work_on(&mut own));
}

/// The next item of a locked iterator.
fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// The longest time that a thread waits for the others without sleeping. They finish within some
/// tens of microseconds, the time of a part; sleeping and waking may take longer.
const AWAKE: Duration = Duration::from_micros(200);

/// Calls `own` while `count` threads call `other`. Not generic, so the code that starts threads is
/// compiled only once.
///
/// # Panics
/// With the message of the thread that panics.
fn beside(count: usize, other: &(dyn Fn() + Sync), own: &mut dyn FnMut()) {
    let panicked = Mutex::new(None);
    let caught = || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(other)) {
            *panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    };
    thread::scope(|scope| {
        // If a thread cannot be started, the others do its work.
        let start = |_| thread::Builder::new().spawn_scoped(scope, caught).ok();
        let threads: Vec<_> = (0..count).filter_map(start).collect();
        own();
        let since = Instant::now();
        while !threads.iter().all(|thread| thread.is_finished()) && since.elapsed() < AWAKE {
            hint::spin_loop();
        }
        // The scope ends after the calls. Joining a thread would also wait until its memory is
        // returned.
    });
    if let Some(panic) = panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(panic);
    }
}

/// How many tensors of these sizes, the largest first, threads divide: each tensor with more than a
/// thread's share of the remaining elements. Also returns how many elements the other tensors have.
pub(crate) fn count_divided(
    elements: impl Iterator<Item = usize> + Clone,
    threads: usize,
    kind: Work,
) -> (usize, usize) {
    let mut rest = elements.clone().fold(0, usize::saturating_add);
    let mut divided = 0;
    for tensor in elements {
        if threads < 2 || tensor < kind.divided || tensor.saturating_mul(threads) <= rest {
            break;
        }
        rest = rest.saturating_sub(tensor);
        divided += 1;
    }
    (divided, rest)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn each_job_is_done_once_and_threads_work_at_the_same_time() {
        for count in [1, 3] {
            let mut threads = Threads::new(count);
            // A barrier opens only for as many threads.
            let (barrier, done) = (Barrier::new(count), Mutex::new(Vec::new()));
            threads.each((0..3 * count).collect(), usize::MAX, ENCODING, |job, _| {
                barrier.wait();
                done.lock().unwrap().push((job, thread::current().id()));
            });
            let done = done.into_inner().unwrap();
            let jobs: HashSet<_> = done.iter().map(|(job, _)| *job).collect();
            let ids: HashSet<_> = done.iter().map(|(_, id)| *id).collect();
            assert_eq!((done.len(), jobs.len(), ids.len()), (3 * count, 3 * count, count));
        }
        assert_eq!(Threads::new(0).count(), 1);
        assert_eq!(Threads::new(usize::MAX).count(), Threads::MOST);
        Threads::new(4).each(Vec::<u8>::new(), 0, ENCODING, |_, _| panic!("there is no job"));
    }

    #[test]
    #[should_panic(expected = "another thread fails")]
    fn a_panic_of_another_thread_is_passed_on() {
        // Both threads have a job when it opens.
        let (own, barrier) = (thread::current().id(), Barrier::new(2));
        Helpers::new(1).share(0..2, |_| {
            barrier.wait();
            assert!(thread::current().id() == own, "another thread fails");
        });
    }

    #[test]
    fn a_tensor_is_divided_if_it_has_more_than_a_threads_share() {
        const LARGE: usize = MIN_DIVIDED;
        let divided = |elements: &[usize], threads| {
            count_divided(elements.iter().copied(), threads, ENCODING).0
        };
        assert_eq!(divided(&[LARGE], 2), 1);
        assert_eq!(divided(&[LARGE], 1), 0);
        assert_eq!(divided(&[LARGE - 1], 2), 0);
        assert_eq!(divided(&[LARGE, LARGE], 2), 0);
        // 9 of 13, then 3 of 4; the last is small.
        assert_eq!(divided(&[9 * LARGE, 3 * LARGE, LARGE - 1], 2), 2);
        assert_eq!(divided(&[2 * LARGE, 2 * LARGE, 2 * LARGE, LARGE], 3), 0);
        assert_eq!(divided(&[], 2), 0);
        let rest = |elements: [usize; 3]| count_divided(elements.into_iter(), 2, ENCODING).1;
        assert_eq!(rest([9 * LARGE, LARGE - 1, 7]), LARGE + 6);
    }

    #[test]
    fn a_group_has_a_thread_for_each_share_of_elements() {
        let ids = |elements| {
            let found = Mutex::new(HashSet::new());
            Threads::new(3).each((0..64).collect::<Vec<_>>(), elements, ENCODING, |_, _| {
                // Long enough for other threads to run.
                thread::sleep(std::time::Duration::from_millis(1));
                found.lock().unwrap().insert(thread::current().id());
            });
            found.into_inner().unwrap().len()
        };
        let share = ENCODING.share;
        assert_eq!([ids(0), ids(2 * share - 1), ids(2 * share), ids(9 * share)], [1, 1, 2, 3]);
        let threads = Threads::new(2);
        assert!(threads.share(2, 2 * share) && !threads.share(2, 2 * share - 1));
        assert!(threads.share(1, MIN_DIVIDED) && !threads.share(1, MIN_DIVIDED - 1));
        assert!(!Threads::new(1).share(1, MIN_DIVIDED));
    }
}
