//! An evaluation that all threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use gradwire_models::models::{Score, Statistics};
use gradwire_models::tasks::Replica;

use crate::permits::Permits;

/// The input of an evaluation: parameters, batch-norm statistics and the number of test examples.
#[derive(Debug, Default)]
pub(super) struct Subject {
    pub(super) parameters: Vec<Vec<f32>>,
    pub(super) statistics: Vec<Statistics>,
    pub(super) examples: usize,
}

/// The evaluation in progress. Worker 0 and the source of statistics set its subject, all workers
/// score parts, worker 0 reads the result.
#[derive(Debug, Default)]
pub(super) struct SharedEvaluation {
    subject: RwLock<Subject>,
    next: AtomicUsize,
    scores: Mutex<Vec<Score>>,
}

impl SharedEvaluation {
    /// Begins an evaluation in this number of parts. No worker may be in [`work`](Self::work).
    pub(super) fn begin(&self, parts: usize) {
        *self.scores() = vec![Score::default(); parts];
        self.next.store(0, Ordering::SeqCst);
    }

    /// The subject, for writing. No worker may be in [`work`](Self::work).
    pub(super) fn subject(&self) -> RwLockWriteGuard<'_, Subject> {
        self.subject.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluates parts until none is left. Returns when every part has been taken by some worker.
    pub(super) fn work(&self, replica: &dyn Replica, permits: &Permits) {
        let subject = self.subject.read().unwrap_or_else(PoisonError::into_inner);
        let Subject { parameters, statistics, examples } = &*subject;
        let parts = replica.test_parts(*examples);
        loop {
            let part = self.next.fetch_add(1, Ordering::SeqCst);
            if part >= parts {
                return;
            }
            let _permit = permits.acquire();
            let score = replica.score(parameters, statistics, *examples, part);
            self.scores()[part] = score;
        }
    }

    /// The total, once all workers are done; summed in the order of the parts, whichever worker
    /// scored them.
    pub(super) fn result(&self) -> Score {
        let mut total = Score::default();
        self.scores().iter().for_each(|&score| total.add(score));
        total
    }

    fn scores(&self) -> MutexGuard<'_, Vec<Score>> {
        self.scores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
