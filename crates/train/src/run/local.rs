//! A worker that trains on its own between two rounds, with an optimizer of its own.

use gradwire::{State, StateError};
use gradwire_exchange::{Exchange, Optimizer};

/// The worker's own parameters and optimizer. At the end of a round what travels is the change of the
/// parameters since its beginning; afterwards the worker goes on from the common parameters.
pub(super) struct Local {
    /// The worker's own parameters.
    pub(super) parameters: Vec<Vec<f32>>,
    optimizer: Box<dyn Optimizer>,
    /// Whether to forget the momentum of what has been sent.
    mask: bool,
}

impl Local {
    pub(super) fn new(
        parameters: Vec<Vec<f32>>,
        optimizer: Box<dyn Optimizer>,
        mask: bool,
    ) -> Self {
        Self { parameters, optimizer, mask }
    }

    /// One local iteration.
    pub(super) fn update(&mut self, learning_rate: f32, gradients: &[Vec<f32>]) {
        for (index, (gradient, parameters)) in
            gradients.iter().zip(&mut self.parameters).enumerate()
        {
            self.optimizer.update(index, learning_rate, gradient, parameters);
        }
    }

    /// Writes how far the parameters have come from the common ones.
    pub(super) fn change(&self, common: &[Vec<f32>], change: &mut [Vec<f32>]) {
        for ((change, own), common) in change.iter_mut().zip(&self.parameters).zip(common) {
            for ((change, own), common) in change.iter_mut().zip(own).zip(common) {
                *change = own - common;
            }
        }
    }

    /// Goes on from the common parameters, after a round in which `exchange` sent the change.
    pub(super) fn follow(&mut self, common: &[Vec<f32>], exchange: &dyn Exchange) {
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
