//! The interface between training and a model with its data.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::GradientSink;

use crate::models::{Score, Statistics};

/// The least memory of a worker's batch, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchBytes {
    /// From step to step.
    pub loaded: u64,
    /// While its gradient is computed.
    pub activations: u64,
}

impl BatchBytes {
    /// The memory of this number of examples, with these bytes each and these values for the
    /// backward pass.
    pub fn new(examples: usize, bytes: usize, values: usize) -> Self {
        let times = |size: usize| (examples as u64).saturating_mul(size as u64);
        Self { loaded: times(bytes), activations: times(values).saturating_mul(4) }
    }
}

/// One worker's copy of the model, and the batches it learns from. Parameters and gradients stay
/// outside: one vector for each tensor, in the order of [`tensors`](Self::tensors).
pub trait Replica: Send + Sync {
    /// The names and shapes of the model's parameters, the same on all workers.
    fn tensors(&self) -> &[Tensor];

    /// The initial parameters of a run, a pure function of the seed.
    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>>;

    /// The least memory of a batch; 0 if unknown.
    fn batch_bytes(&self) -> BatchBytes {
        BatchBytes::default()
    }

    /// Loads the batch of a step.
    fn load_batch(&mut self, step: u64);

    /// The number of parts of the loaded batch: its examples, or 1 if they depend on each other, as
    /// the windows of a text do. Batch normalisation takes its statistics from the parts in one
    /// call.
    fn parts(&self) -> usize;

    /// Adds the mean gradient of these parts of the batch loaded for `step`, as if there were no
    /// others, and returns their mean loss. An LSTM adds the gradient of the sum over its unrolled
    /// steps of the mean over streams. A model whose gradients become final layer by layer passes
    /// each to `sink` as soon as it is final; others, which have one group of tensors in their
    /// [order](Self::gradient_order), do not use `sink`.
    fn add_gradients(
        &mut self,
        step: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64;

    /// Groups of tensors whose gradients become final together, in the order of back-propagation.
    fn gradient_order(&self) -> Vec<Vec<usize>> {
        vec![(0..self.tensors().len()).collect()]
    }

    /// Whether [`add_full_gradient`](Self::add_full_gradient) is implemented, which variance
    /// reduction needs.
    fn has_full_gradient(&self) -> bool {
        false
    }

    /// Adds this worker's part of the gradient of the mean loss over the whole training set,
    /// without augmentation; the mean over workers is the full gradient. `scratch` has the sizes of
    /// the parameters. The model must not have batch normalisation, since the gradient of an
    /// example would depend on the others in its batch.
    ///
    /// # Panics
    /// If the replica [has none](Self::has_full_gradient).
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

    /// Replaces the running statistics of batch normalisation by the mean statistics of the batches
    /// of these steps with these parameters. Load a batch again afterwards.
    fn estimate_statistics(&mut self, steps: Range<u64>, parameters: &[Vec<f32>]) {
        let _ = (steps, parameters);
    }

    /// Replaces the running statistics of batch normalisation by others of the same model.
    fn set_statistics(&mut self, statistics: Vec<Statistics>) {
        let _ = statistics;
    }

    /// Examples in the test set: images, tokens that can be predicted, or users with a held-out
    /// item.
    fn test_examples(&self) -> usize;

    /// The number of parts into which workers divide an evaluation of `examples` test examples.
    fn test_parts(&self, examples: usize) -> usize;

    /// Evaluates one part of the first `examples` test examples, with these parameters and
    /// batch-norm statistics.
    fn score(
        &self,
        parameters: &[Vec<f32>],
        statistics: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score;

    /// Adds the replica's state between steps to `state`: batch-norm statistics, or the hidden
    /// state of a language model.
    fn save(&self, state: &mut State) {
        let _ = state;
    }

    /// Restores the state that [`save`](Self::save) wrote in a run of `saved_by` workers, in a run
    /// of `workers`. If the numbers differ, uses the batch-norm statistics of one saved worker, and
    /// a language model starts with a zero hidden state.
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

/// The examples of part `part` of a test on the first `examples` examples, in parts of `size`.
pub(super) fn part_of(examples: usize, part: usize, size: usize) -> Range<usize> {
    part * size..((part + 1) * size).min(examples)
}
