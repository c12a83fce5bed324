//! An evaluation that all workers share.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use super::batches::test_batch;
use super::gate::Gate;
use crate::data::Dataset;
use crate::models::{Model, Score, Statistics};

/// Test images evaluated at a time.
const BATCH: usize = 100;

/// What is evaluated: a model's parameters and batch-norm statistics, and on how many images.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) parameters: Vec<Vec<f32>>,
    pub(super) statistics: Vec<Statistics>,
    pub(super) examples: usize,
}

/// The evaluation in progress. One worker sets it, all work on it, one collects the result.
#[derive(Debug, Default)]
pub(super) struct Exam {
    subject: RwLock<Option<Subject>>,
    next: AtomicUsize,
    scores: Mutex<Vec<Score>>,
}

impl Exam {
    /// Sets what is evaluated. Nobody works on an exam at this time.
    pub(super) fn set(&self, subject: Subject) {
        let batches = subject.examples.div_ceil(BATCH);
        *self.scores.lock().unwrap_or_else(PoisonError::into_inner) =
            vec![Score::default(); batches];
        self.next.store(0, Ordering::SeqCst);
        *self.subject.write().unwrap_or_else(PoisonError::into_inner) = Some(subject);
    }

    /// Evaluates batches until none is left. Returns when every batch has been taken by someone.
    pub(super) fn work(&self, model: &Model, data: &Dataset, gate: &Gate) {
        let subject = self.subject.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Subject { parameters, statistics, examples }) = &*subject else { return };
        let mut images = Vec::new();
        loop {
            let batch = self.next.fetch_add(1, Ordering::SeqCst);
            let range = range(batch, *examples);
            if range.is_empty() {
                return;
            }
            let _permit = gate.enter();
            let labels = test_batch(data, range, &mut images);
            let score = model.evaluate_with(parameters, statistics, &images, labels);
            self.scores.lock().unwrap_or_else(PoisonError::into_inner)[batch] = score;
        }
    }

    /// The total, once everyone is done; summed in the order of the images, whoever scored them.
    pub(super) fn result(&self) -> Score {
        let scores = self.scores.lock().unwrap_or_else(PoisonError::into_inner);
        scores.iter().fold(Score::default(), |total, score| Score {
            correct: total.correct + score.correct,
            loss: total.loss + score.loss,
            examples: total.examples + score.examples,
        })
    }
}

/// The images of a batch, empty past the last.
fn range(batch: usize, examples: usize) -> Range<usize> {
    (batch * BATCH).min(examples)..((batch + 1) * BATCH).min(examples)
}
