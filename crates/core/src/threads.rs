//! Threads that work side by side on the tensors of a group.

use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::{SCRATCH, Workspace};

/// The number of threads that encode or decode several tensors side by side, and the buffers of each.
///
/// Each tensor is the work of one thread, so a group takes at least as long as its largest tensor. Messages do not depend on the
/// number of threads. Threads are started for every group, which takes some ten microseconds each; none waits in between.
#[derive(Debug)]
pub struct Threads {
    buffers: Vec<Buffers>,
}

/// The buffers of one thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) workspace: Workspace,
    pub(crate) scratch: Vec<f32>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { workspace: Workspace::default(), scratch: vec![0.0; SCRATCH] }
    }
}

impl Threads {
    /// This many threads, at least one, the caller's among them.
    pub fn new(count: usize) -> Self {
        Self { buffers: (0..count.max(1)).map(|_| Buffers::default()).collect() }
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.buffers.len()
    }

    /// Calls `work` for each job, in the order of the jobs as threads become free.
    ///
    /// # Panics
    /// If a call of `work` panics.
    pub(crate) fn each<T: Send>(&mut self, jobs: Vec<T>, work: impl Fn(T, &mut Buffers) + Sync) {
        let others = self.count().min(jobs.len()).saturating_sub(1);
        let queue = Mutex::new(jobs.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let take_turns = |buffers: &mut Buffers| {
            while let Some(job) = next() {
                work(job, buffers);
            }
        };
        let Some((own, rest)) = self.buffers.split_first_mut() else { return };
        thread::scope(|scope| {
            for buffers in &mut rest[..others] {
                scope.spawn(|| take_turns(buffers));
            }
            take_turns(own);
        });
    }
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
            threads.each((0..3 * count).collect(), |job, _| {
                barrier.wait();
                done.lock().unwrap().push((job, thread::current().id()));
            });
            let done = done.into_inner().unwrap();
            let jobs: HashSet<_> = done.iter().map(|(job, _)| *job).collect();
            let ids: HashSet<_> = done.iter().map(|(_, id)| *id).collect();
            assert_eq!((done.len(), jobs.len(), ids.len()), (3 * count, 3 * count, count));
        }
        assert_eq!(Threads::new(0).count(), 1);
        Threads::new(4).each(Vec::<u8>::new(), |_, _| panic!("there is no job"));
    }
}
