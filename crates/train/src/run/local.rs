//! A worker that trains on its own between two rounds, with an optimizer of its own.

use gradwire::{State, StateError};
use gradwire_exchange::{DistributedOptimizer, Optimizer};

use super::Payload;

/// The worker's own parameters and optimizer. At the end of a round what travels is the change of the
/// parameters since its beginning, or the parameters; afterwards the worker goes on from the common parameters.
pub(super) struct Local {
    /// The worker's own parameters.
    pub(super) parameters: Vec<Vec<f32>>,
    optimizer: Box<dyn Optimizer>,
    /// Whether to forget the momentum of what has been sent.
    mask: bool,
    send: Payload,
}

impl Local {
    pub(super) fn new(
        parameters: Vec<Vec<f32>>,
        optimizer: Box<dyn Optimizer>,
        mask: bool,
        send: Payload,
    ) -> Self {
        Self { parameters, optimizer, mask, send }
    }

    /// One local iteration.
    pub(super) fn update(&mut self, learning_rate: f32, gradients: &[Vec<f32>]) {
        for (index, (gradient, parameters)) in
            gradients.iter().zip(&mut self.parameters).enumerate()
        {
            self.optimizer.update(index, learning_rate, gradient, parameters);
        }
    }

    /// Writes what travels: the parameters, or how far they have come from the common ones.
    pub(super) fn write(&self, common: &[Vec<f32>], out: &mut [Vec<f32>]) {
        for ((out, own), common) in out.iter_mut().zip(&self.parameters).zip(common) {
            if self.send == Payload::Weights {
                out.copy_from_slice(own);
                continue;
            }
            for ((out, own), common) in out.iter_mut().zip(own).zip(common) {
                *out = own - common;
            }
        }
    }

    /// Goes on from the common parameters, after a round of `exchange`.
    pub(super) fn follow(&mut self, common: &[Vec<f32>], exchange: &dyn DistributedOptimizer) {
        for (index, (own, common)) in self.parameters.iter_mut().zip(common).enumerate() {
            own.copy_from_slice(common);
            if self.mask
                && let Some(sent) = exchange.sent(index)
            {
                self.optimizer.mask(index, sent);
            }
        }
    }

    /// Adds the optimizer's state to `state`.
    pub(super) fn save(&self, state: &mut State) {
        self.optimizer.save("local/", state);
    }

    /// Takes back what [`save`](Self::save) wrote, between two rounds.
    pub(super) fn restore(&mut self, state: &State) -> Result<(), StateError> {
        self.optimizer.restore("local/", state)
    }
}
