//! An evaluation that all workers share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use super::gate::Gate;
use super::learner::Learner;
use gradwire_models::models::{Score, Statistics};

/// What is evaluated: a model's parameters, and on how many images or tokens.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) parameters: Vec<Vec<f32>>,
    pub(super) examples: usize,
}

/// The evaluation in progress. One worker sets it, all work on it, one collects the result.
#[derive(Debug, Default)]
pub(super) struct Exam {
    subject: RwLock<Option<Subject>>,
    statistics: RwLock<Vec<Statistics>>,
    next: AtomicUsize,
    scores: Mutex<Vec<Score>>,
}

impl Exam {
    /// Sets what is evaluated, in so many parts. Nobody works on an exam at this time.
    pub(super) fn set(&self, subject: Subject, parts: usize) {
        *self.scores.lock().unwrap_or_else(PoisonError::into_inner) = vec![Score::default(); parts];
        self.next.store(0, Ordering::SeqCst);
        *self.subject.write().unwrap_or_else(PoisonError::into_inner) = Some(subject);
    }

    /// Sets the batch-norm statistics that go with the subject's parameters.
    pub(super) fn set_statistics(&self, statistics: Vec<Statistics>) {
        *self.statistics.write().unwrap_or_else(PoisonError::into_inner) = statistics;
    }

    /// Evaluates parts until none is left. Returns when every part has been taken by someone.
    pub(super) fn work(&self, learner: &Learner<'_>, gate: &Gate) {
        let subject = self.subject.read().unwrap_or_else(PoisonError::into_inner);
        let Some(subject) = &*subject else { return };
        let statistics = self.statistics.read().unwrap_or_else(PoisonError::into_inner);
        let parts = learner.test_parts(subject.examples);
        let mut scratch = Vec::new();
        loop {
            let part = self.next.fetch_add(1, Ordering::SeqCst);
            if part >= parts {
                return;
            }
            let _permit = gate.enter();
            let score = learner.score(subject, &statistics, part, &mut scratch);
            self.scores.lock().unwrap_or_else(PoisonError::into_inner)[part] = score;
        }
    }

    /// The total, once everyone is done; summed in the order of the parts, whoever scored them.
    pub(super) fn result(&self) -> Score {
        let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = Score::default();
        scores.iter().for_each(|&score| total.add(score));
        total
    }
}
