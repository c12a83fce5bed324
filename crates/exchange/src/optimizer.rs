//! The update rule, which runs on each worker or on the parameter server.

use gradwire::{State, StateError};

/// Updates parameters with an averaged gradient, and keeps its own state for each tensor.
pub trait Optimizer: Send {
    /// Updates the parameters of tensor `index` (its position in the model's list of tensors).
    fn update(
        &mut self,
        index: usize,
        learning_rate: f32,
        gradient: &[f32],
        parameters: &mut [f32],
    );

    /// Replaces this rank's gradient of a tensor with the values that ranks exchange instead, such
    /// as its momentum. The next [`update`](Self::update) of the tensor gets the mean of these
    /// values over all ranks. By default gradients are exchanged.
    ///
    /// Only an exchange without servers and without overlap calls it; others refuse an optimizer
    /// that does not [exchange gradients](Self::exchanges_gradients).
    fn to_exchange(&self, index: usize, parameters: &[f32], gradient: &mut [f32]) {
        let _ = (index, parameters, gradient);
    }

    /// Whether ranks exchange gradients at every step, and [`to_exchange`](Self::to_exchange)
    /// changes nothing.
    fn exchanges_gradients(&self) -> bool {
        true
    }

    /// Sets the momentum of some elements of a tensor (increasing positions) to zero. They have
    /// just been sent, and their momentum would apply the same update again. Does nothing for an
    /// optimizer without momentum.
    fn mask(&mut self, index: usize, positions: &[u32]) {
        let _ = (index, positions);
    }

    /// Adds the state of every tensor to `state`, under keys that consist of `prefix` and the
    /// tensor's name. An optimizer without state adds nothing.
    fn save(&self, prefix: &str, state: &mut State) {
        let _ = (prefix, state);
    }

    /// Restores the state that [`save`](Self::save) wrote under the same prefix.
    ///
    /// # Errors
    /// The errors of the state: entries that are missing or have the wrong size.
    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        let _ = (prefix, state);
        Ok(())
    }
}

/// Replaces the parameters with the mean, for ranks that exchange their parameters.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplaceParameters;

impl Optimizer for ReplaceParameters {
    fn update(&mut self, _: usize, _: f32, mean: &[f32], parameters: &mut [f32]) {
        parameters.copy_from_slice(mean);
    }
}

/// Adds the mean to the parameters, for ranks that exchange changes of their parameters.
#[derive(Debug, Clone, Copy, Default)]
pub struct AddUpdate;

impl Optimizer for AddUpdate {
    fn update(&mut self, _: usize, _: f32, change: &[f32], parameters: &mut [f32]) {
        for (parameter, change) in parameters.iter_mut().zip(change) {
            *parameter += change;
        }
    }
}
