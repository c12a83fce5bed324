//! The output of threads that work on parts side by side, taken in the order of the parts.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::workspace::Helpers;

/// Takes the output of threads in the order of the parts.
pub(crate) struct InOrder<'a, P> {
    pieces: Mutex<Pieces<P>>,
    /// Only the thread that [takes](Pieces::taken) locks it.
    take: Mutex<&'a mut (dyn FnMut(&P) + Send)>,
}

/// The output of the threads.
struct Pieces<P> {
    /// The part to take next.
    next: usize,
    /// The output of that part and later ones, up to the last finished part; `None` for an
    /// unfinished one.
    done: VecDeque<Option<P>>,
    /// Whether a thread takes parts. The others then leave their parts to it, as waiting for it
    /// would take longer than writing a part.
    taken: bool,
    /// Buffers that no thread uses.
    spare: Vec<P>,
}

impl<'a, P: Default> InOrder<'a, P> {
    pub(crate) fn new(spare: Vec<P>, take: &'a mut (dyn FnMut(&P) + Send)) -> Self {
        let pieces = Pieces { next: 0, done: VecDeque::new(), taken: false, spare };
        Self { pieces: Mutex::new(pieces), take: Mutex::new(take) }
    }

    /// Lets `write` write part `at` while other threads write other parts. This thread or another
    /// one takes it in turn.
    pub(crate) fn write(&self, at: usize, write: impl FnOnce(&mut P)) {
        let mut piece = locked(&self.pieces).spare.pop().unwrap_or_default();
        write(&mut piece);
        if locked(&self.pieces).push(at, piece) {
            self.take_done();
        }
    }

    /// Takes parts up to the first unfinished one.
    fn take_done(&self) {
        let mut take = locked(&self.take);
        let mut taken = None;
        loop {
            let next = locked(&self.pieces).next(taken.take());
            let Some(piece) = next else { return };
            take(&piece);
            taken = Some(piece);
        }
    }

    /// The buffers, to be used again.
    pub(crate) fn into_spare(self) -> Vec<P> {
        self.pieces.into_inner().unwrap_or_else(PoisonError::into_inner).spare
    }
}

impl<P> Pieces<P> {
    /// Adds a finished part. Returns whether the caller has to take parts.
    fn push(&mut self, at: usize, piece: P) -> bool {
        let ahead = at - self.next;
        while self.done.len() <= ahead {
            self.done.push_back(None);
        }
        self.done[ahead] = Some(piece);
        !std::mem::replace(&mut self.taken, true)
    }

    /// The next part after `taken`, if it is finished.
    fn next(&mut self, taken: Option<P>) -> Option<P> {
        self.spare.extend(taken);
        let piece = self.done.front_mut().and_then(Option::take);
        match piece {
            Some(_) => {
                self.done.pop_front();
                self.next += 1;
            }
            None => self.taken = false,
        }
        piece
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    /// Calls `work` for each job, and then `take` with its output, in the order of the jobs and as
    /// soon as possible. One thread at a time calls `take`, while others work. The buffer for
    /// `work` is new or has the content of an earlier job.
    pub(crate) fn each_in_order<T: Send, P: Default + Send>(
        &mut self,
        jobs: impl Iterator<Item = T> + Send,
        work: impl Fn(T, &mut P) + Sync,
        mut take: impl FnMut(&P) + Send,
    ) {
        let in_order = InOrder::new(Vec::new(), &mut take);
        self.share(jobs.enumerate(), |(at, job)| {
            in_order.write(at, |piece| work(job, piece));
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
