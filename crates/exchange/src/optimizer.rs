//! The update rule, wherever it runs: on each worker, or on the parameter server.

use gradwire::{State, StateError};

/// Turns a tensor's averaged gradient into new parameters, keeping its own state for each tensor.
pub trait Optimizer: Send {
    /// Updates the parameters of tensor `index` (its position in the model's list of tensors).
    fn update(
        &mut self,
        index: usize,
        learning_rate: f32,
        gradient: &[f32],
        parameters: &mut [f32],
    );

    /// Forgets the momentum of some of a tensor's elements (increasing positions), which have just been
    /// sent: it would carry on in a direction that is gone already. Nothing to do for rules without.
    fn mask(&mut self, index: usize, positions: &[u32]) {
        let _ = (index, positions);
    }

    /// Adds the state of every tensor to `state`, under keys that start with `prefix` and go on
    /// with the tensor's name.
    fn save(&self, prefix: &str, state: &mut State);

    /// Takes back what [`save`](Self::save) wrote under the same prefix.
    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError>;
}

/// Takes the mean for the parameters: the rule where ranks exchange the parameters themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplaceParameters;

impl Optimizer for ReplaceParameters {
    fn update(&mut self, _: usize, _: f32, mean: &[f32], parameters: &mut [f32]) {
        parameters.copy_from_slice(mean);
    }

    fn save(&self, _: &str, _: &mut State) {}

    fn restore(&mut self, _: &str, _: &State) -> Result<(), StateError> {
        Ok(())
    }
}

/// Adds the mean to the parameters: the rule where ranks exchange changes of their parameters.
#[derive(Debug, Clone, Copy, Default)]
pub struct AddUpdate;

impl Optimizer for AddUpdate {
    fn update(&mut self, _: usize, _: f32, change: &[f32], parameters: &mut [f32]) {
        for (parameter, change) in parameters.iter_mut().zip(change) {
            *parameter += change;
        }
    }

    fn save(&self, _: &str, _: &mut State) {}

    fn restore(&mut self, _: &str, _: &State) -> Result<(), StateError> {
        Ok(())
    }
}
