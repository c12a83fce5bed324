//! The gradient of a batch as the sum of those of its parts, and the sums of their squares, for compressors that go
//! by how much parts agree.

use gradwire::Tensor;

use super::learner::Learner;

/// Parts of a batch, where it has so many examples.
const PARTS: usize = 4;

/// Buffers for the gradients of parts.
pub(super) struct Parts {
    /// The gradient of one part.
    own: Vec<Vec<f32>>,
    /// Elementwise, the sum of the squares of what the parts of the last batch added.
    pub(super) squares: Vec<Vec<f32>>,
    /// The same of all batches of the round.
    pub(super) round: Vec<Vec<f32>>,
}

impl Parts {
    /// Buffers for gradients of these tensors.
    pub(super) fn new(tensors: &[Tensor]) -> Self {
        let zeros = || tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect();
        Self { own: zeros(), squares: zeros(), round: zeros() }
    }

    /// [`Learner::add_gradients`], part by part: each adds its mean gradient by its share of the examples.
    pub(super) fn add_gradients(
        &mut self,
        learner: &mut Learner<'_>,
        step: u64,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        self.squares.iter_mut().for_each(|squares| squares.fill(0.0));
        let (examples, mut loss) = (learner.divisible(), 0.0);
        let parts = PARTS.min(examples);
        for part in 0..parts {
            let range = examples * part / parts..examples * (part + 1) / parts;
            let share = range.len() as f32 / examples as f32;
            self.own.iter_mut().for_each(|own| own.fill(0.0));
            loss +=
                f64::from(share) * learner.add_gradients_of(step, range, parameters, &mut self.own);
            let sums = gradients.iter_mut().flatten().zip(self.squares.iter_mut().flatten());
            for ((gradient, square), own) in sums.zip(self.own.iter().flatten()) {
                let added = share * own;
                *gradient += added;
                *square += added * added;
            }
        }
        loss
    }

    /// Adds the last batch to the round.
    pub(super) fn add_to_round(&mut self) {
        for (sum, square) in self.round.iter_mut().flatten().zip(self.squares.iter().flatten()) {
            *sum = (*sum + square).min(f32::MAX);
        }
    }

    /// Begins a round, without batches yet.
    pub(super) fn begin_round(&mut self) {
        self.round.iter_mut().for_each(|round| round.fill(0.0));
    }

    /// Multiplies the squares as the gradients have been.
    pub(super) fn scale(&mut self, factor: f32) {
        if factor != 1.0 {
            self.squares.iter_mut().flatten().for_each(|square| *square *= factor * factor);
        }
    }
}
