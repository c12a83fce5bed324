//! What every task offers to training.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::GradientSink;

use super::Metric;
use crate::Split;
use crate::models::{ModelError, ModelKind, Score, Statistics};

/// The settings of a run that its task depends on.
#[derive(Debug, Clone, Copy)]
pub struct TaskConfig {
    /// The model to train.
    pub model: ModelKind,
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Examples per worker and step; of text, streams that a worker reads side by side. At least 1.
    pub batch: usize,
    /// Whether training images are randomly cropped, flipped or shifted.
    pub augment: bool,
    /// Seeds the order of the examples and every other draw of the task.
    pub seed: u64,
}

/// What is to be learned from a data set, and how it is measured. `'a` is the lifetime of the data.
pub trait Task<'a> {
    /// Refuses settings the task cannot be trained with, and data too few to train or to evaluate on.
    ///
    /// # Errors
    /// The reason, with what to change.
    fn check(&self, config: &TaskConfig) -> Result<(), String>;

    /// What the quality of its models is measured in.
    fn metric(&self) -> Metric;

    /// The number of training examples: images, tokens or ratings.
    fn examples(&self) -> usize;

    /// The class of each training example, where each has one.
    fn labels(&self) -> Option<&[u16]> {
        None
    }

    /// The examples of each worker; `None` where all workers share one sequence of examples.
    ///
    /// # Errors
    /// The reason, with what to change: the task has no such split, or a worker would get no example.
    fn shards(
        &self,
        split: &Split,
        workers: usize,
        seed: u64,
    ) -> Result<Option<Vec<Vec<u32>>>, String> {
        match self.labels() {
            Some(labels) => split.shards(labels, workers, seed),
            None if split.is_by_class() => Err(format!(
                "the split '{split}' sorts examples by class, and these do not have one class each; take shared or shards"
            )),
            // The other splits only count the labels.
            None => split.shards(&vec![0; self.examples()], workers, seed),
        }
    }

    /// Steps in which `workers` with batches of `batch` see the training set once.
    fn steps_per_epoch(&self, workers: usize, batch: usize) -> f64 {
        self.examples() as f64 / (workers * batch) as f64
    }

    /// The replica of worker `rank`, which draws its batches from `shard` or, without one, from the sequence that all
    /// workers share.
    ///
    /// # Errors
    /// If the model cannot be built for the data.
    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError>;
}

/// One worker's copy of the model, and the batches it learns from. Parameters and gradients stay outside: one vector
/// for each tensor, in the order of [`tensors`](Self::tensors).
pub trait Replica: Send + Sync {
    /// The names and shapes of the model's parameters.
    fn tensors(&self) -> &[Tensor];

    /// The parameters that a run begins with, a pure function of the seed.
    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>>;

    /// Loads the batch of a step.
    fn load_batch(&mut self, step: u64);

    /// The number of parts the loaded batch can be divided into: its examples, or 1 where they depend on each other.
    fn parts(&self) -> usize;

    /// Adds the mean gradient of these parts of the batch loaded for `step`, as if there were no others, and returns
    /// their mean loss.
    fn add_gradients_of(
        &mut self,
        step: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64;

    /// Adds the mean gradient of the batch loaded for `step` and returns its mean loss. A model whose gradients become
    /// known layer by layer hands each to `sink` as soon as it is final; others leave `sink` alone.
    fn add_gradients(
        &mut self,
        step: u64,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let _ = sink;
        self.add_gradients_of(step, 0..self.parts(), parameters, gradients)
    }

    /// Groups of tensors whose gradients become known together, in the order in which they do.
    fn gradient_order(&self) -> Vec<Vec<usize>> {
        vec![(0..self.tensors().len()).collect()]
    }

    /// Adds this worker's part of the gradient of the mean loss over the whole training set, without augmentation: the
    /// mean over workers is the whole. `scratch` has the sizes of the parameters. Batch-norm statistics stay as they
    /// are.
    ///
    /// # Panics
    /// If the task does not learn from [images](crate::TaskKind::is_of_images).
    fn add_full_gradient(
        &mut self,
        parameters: &[Vec<f32>],
        scratch: &mut [Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) {
        let _ = (parameters, scratch, gradients);
        panic!("the full gradient is defined for a fixed set of training images");
    }

    /// The running statistics of batch normalisation; none in models without.
    fn statistics(&self) -> &[Statistics] {
        &[]
    }

    /// Replaces the running statistics of batch normalisation by others of the same model.
    fn set_statistics(&mut self, statistics: Vec<Statistics>) {
        let _ = statistics;
    }

    /// Examples in the test set: images, tokens that can be predicted, or users with an item kept back.
    fn test_examples(&self) -> usize;

    /// The number of parts that workers divide an evaluation of `examples` test examples into.
    fn test_parts(&self, examples: usize) -> usize;

    /// Evaluates one part of the first `examples` test examples, with these parameters and batch-norm statistics.
    fn score(
        &self,
        parameters: &[Vec<f32>],
        statistics: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score;

    /// Adds what the replica keeps from step to step to `state`: batch-norm statistics, or the hidden state of a
    /// language model.
    fn save(&self, state: &mut State) {
        let _ = state;
    }

    /// Restores what [`save`](Self::save) wrote in a run of `saved_by` workers, in a run of `workers`. Where the numbers
    /// differ, it takes the batch-norm statistics of one of them, and a language model starts with an empty hidden
    /// state.
    ///
    /// # Errors
    /// If an entry is missing or of another size.
    fn restore(
        &mut self,
        state: &State,
        saved_by: usize,
        workers: usize,
    ) -> Result<(), StateError> {
        let _ = (state, saved_by, workers);
        Ok(())
    }
}
