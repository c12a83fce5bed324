//! The gradient of a batch as the sum of the gradients of its parts, and the sum of their squares,
//! for compressors that use the agreement of the parts.
//!
//! Batch normalisation uses the statistics of a part, not of the batch. Each part updates the
//! running statistics.

use gradwire::Tensor;
use gradwire_models::tasks::Replica;

/// The number of parts of a batch that has at least this many examples.
const PARTS: usize = 4;

/// Buffers for the gradients of parts of a batch.
pub(crate) struct MicroBatches {
    /// The gradient of one part.
    part: Vec<Vec<f32>>,
    /// For each element, the sum of the squares of the gradients of the last batch's parts.
    squares: Vec<Vec<f32>>,
    /// The sum of `squares` over all batches of the round.
    pub(crate) round: Vec<Vec<f32>>,
}

impl MicroBatches {
    /// Buffers for gradients of these tensors.
    pub(crate) fn new(tensors: &[Tensor]) -> Self {
        let zeros = || tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect();
        Self { part: zeros(), squares: zeros(), round: zeros() }
    }

    /// [`Replica::add_gradients`], part by part: each adds its mean gradient, weighted by its
    /// fraction of the examples.
    pub(crate) fn add_gradients(
        &mut self,
        replica: &mut dyn Replica,
        step: u64,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        self.squares.iter_mut().for_each(|squares| squares.fill(0.0));
        let (examples, mut loss) = (replica.parts(), 0.0);
        let parts = PARTS.min(examples);
        for part in 0..parts {
            let range = examples * part / parts..examples * (part + 1) / parts;
            let share = range.len() as f32 / examples as f32;
            self.part.iter_mut().for_each(|values| values.fill(0.0));
            let part_loss = replica.add_gradients(step, range, parameters, &mut self.part, None);
            loss += f64::from(share) * part_loss;
            let sums = gradients.iter_mut().flatten().zip(self.squares.iter_mut().flatten());
            for ((gradient, square), value) in sums.zip(self.part.iter().flatten()) {
                let added = share * value;
                *gradient += added;
                *square += added * added;
            }
        }
        loss
    }

    /// Adds the squares of the last batch to the squares of the round.
    pub(crate) fn add_to_round(&mut self) {
        for (sum, square) in self.round.iter_mut().flatten().zip(self.squares.iter().flatten()) {
            *sum = (*sum + square).min(f32::MAX);
        }
    }

    /// Begins a round, without batches yet.
    pub(crate) fn begin_round(&mut self) {
        self.round.iter_mut().for_each(|round| round.fill(0.0));
    }

    /// Scales the squares of the last batch, whose gradients were scaled by `factor`.
    pub(crate) fn scale(&mut self, factor: f32) {
        if factor != 1.0 {
            self.squares.iter_mut().flatten().for_each(|square| *square *= factor * factor);
        }
    }
}
