//! An evaluation that all threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use gradwire_models::models::{Score, Statistics};
use gradwire_models::tasks::Replica;

use crate::permits::Permits;

/// What is evaluated: the parameters of a model, on how many test examples.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) parameters: Vec<Vec<f32>>,
    pub(super) examples: usize,
}

/// The evaluation in progress. One worker sets the subject and one the statistics, all work on it, one collects the
/// result.
#[derive(Debug, Default)]
pub(super) struct SharedEvaluation {
    subject: RwLock<Option<Subject>>,
    statistics: RwLock<Vec<Statistics>>,
    next: AtomicUsize,
    scores: Mutex<Vec<Score>>,
}

impl SharedEvaluation {
    /// Sets what is evaluated, in this number of parts. No worker may be at [`work`](Self::work).
    pub(super) fn set_subject(&self, subject: Subject, parts: usize) {
        *self.scores.lock().unwrap_or_else(PoisonError::into_inner) = vec![Score::default(); parts];
        self.next.store(0, Ordering::SeqCst);
        *self.subject.write().unwrap_or_else(PoisonError::into_inner) = Some(subject);
    }

    /// Sets the batch-norm statistics that go with the parameters.
    pub(super) fn set_statistics(&self, statistics: Vec<Statistics>) {
        *self.statistics.write().unwrap_or_else(PoisonError::into_inner) = statistics;
    }

    /// Evaluates parts until none is left. Returns when every part has been taken by some worker.
    pub(super) fn work(&self, replica: &dyn Replica, permits: &Permits) {
        let subject = self.subject.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Subject { parameters, examples }) = &*subject else { return };
        let statistics = self.statistics.read().unwrap_or_else(PoisonError::into_inner);
        let parts = replica.test_parts(*examples);
        loop {
            let part = self.next.fetch_add(1, Ordering::SeqCst);
            if part >= parts {
                return;
            }
            let _permit = permits.acquire();
            let score = replica.score(parameters, &statistics, *examples, part);
            self.scores.lock().unwrap_or_else(PoisonError::into_inner)[part] = score;
        }
    }

    /// The total, once all workers are done; summed in the order of the parts, whichever worker scored them.
    pub(super) fn result(&self) -> Score {
        let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = Score::default();
        scores.iter().for_each(|&score| total.add(score));
        total
    }
}
