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

    /// Adds the state of every tensor to `state`, under keys that start with `prefix` and go on
    /// with the tensor's name.
    fn save(&self, prefix: &str, state: &mut State);

    /// Takes back what [`save`](Self::save) wrote under the same prefix.
    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError>;
}
