//! What threads write for parts, side by side, taken in the order of the parts.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Helpers;

/// Takes what threads write, in the order of the parts.
pub(super) struct InOrder<'a, P> {
    /// The part to take next.
    next: usize,
    /// That part and those after it, as far as one is done; `None` is one that is not.
    done: VecDeque<Option<P>>,
    /// Buffers that no thread uses.
    spare: Vec<P>,
    take: &'a mut (dyn FnMut(&P) + Send),
}

impl<'a, P: Default> InOrder<'a, P> {
    pub(super) fn new(spare: Vec<P>, take: &'a mut (dyn FnMut(&P) + Send)) -> Mutex<Self> {
        Mutex::new(Self { next: 0, done: VecDeque::new(), spare, take })
    }

    /// Lets `write` write part `at`, while other threads write others, and takes it in its turn.
    pub(super) fn write(this: &Mutex<Self>, at: usize, write: impl FnOnce(&mut P)) {
        let mut piece = Self::lock(this).spare.pop().unwrap_or_default();
        write(&mut piece);
        Self::lock(this).push(at, piece);
    }

    /// The buffers, to be used again.
    pub(super) fn into_spare(this: Mutex<Self>) -> Vec<P> {
        this.into_inner().unwrap_or_else(PoisonError::into_inner).spare
    }

    fn lock(this: &Mutex<Self>) -> MutexGuard<'_, Self> {
        this.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&mut self, at: usize, piece: P) {
        let ahead = at - self.next;
        while self.done.len() <= ahead {
            self.done.push_back(None);
        }
        self.done[ahead] = Some(piece);
        while let Some(piece) = self.done.front_mut().and_then(Option::take) {
            (self.take)(&piece);
            self.spare.push(piece);
            self.done.pop_front();
            self.next += 1;
        }
    }
}

impl Helpers {
    /// Calls `work` for each job, and `take` with what `work` has written for each, in the order of the jobs and as soon as possible. One
    /// thread at a time calls `take`, while others work. `work` gets a buffer that is new or has the content of an earlier job.
    pub(crate) fn each_in_order<T: Send, P: Default + Send>(
        &mut self,
        jobs: impl Iterator<Item = T> + Send,
        work: impl Fn(T, &mut P) + Sync,
        mut take: impl FnMut(&P) + Send,
    ) {
        let in_order = InOrder::new(Vec::new(), &mut take);
        self.share(jobs.enumerate(), |(at, job)| {
            InOrder::write(&in_order, at, |piece| work(job, piece));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_taken_in_order() {
        for count in [0, 1, 3] {
            let mut taken = Vec::new();
            Helpers::new(count).each_in_order(
                0..100,
                |job, written: &mut Vec<usize>| {
                    // The first jobs take the longest.
                    std::thread::sleep(std::time::Duration::from_micros(1000 / (job as u64 + 1)));
                    written.clear();
                    written.push(job);
                },
                |written| taken.extend_from_slice(written),
            );
            assert!(taken.into_iter().eq(0..100), "{count} helpers");
        }
    }
}
