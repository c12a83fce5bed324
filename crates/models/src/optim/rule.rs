//! Update rules of one tensor, and an optimizer that has one for each tensor.

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::Optimizer;

/// An update rule for a single tensor, with that tensor's state.
pub trait Rule: Send {
    /// Updates the parameters. `decay · parameter` is part of the gradient.
    fn update(&mut self, learning_rate: f32, decay: f32, gradient: &[f32], parameters: &mut [f32]);

    /// Resets the momentum of these elements.
    fn mask(&mut self, positions: &[u32]) {
        let _ = positions;
    }

    /// Adds the tensor's state to `state`, under keys that start with `prefix`.
    fn save(&self, prefix: &str, state: &mut State);

    /// Restores what [`save`](Self::save) wrote under the same prefix.
    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError>;
}

/// One rule with its state for each tensor of a model.
pub struct PerTensor<R> {
    names: Vec<String>,
    rules: Vec<R>,
    decay: f32,
}

impl<R: Rule> PerTensor<R> {
    /// A rule for each of `tensors`; `make` makes one for a number of elements.
    pub fn new(tensors: &[Tensor], decay: f32, make: impl Fn(usize) -> R) -> Self {
        Self {
            names: tensors.iter().map(|tensor| tensor.name().to_owned()).collect(),
            rules: tensors.iter().map(|tensor| make(tensor.elements())).collect(),
            decay,
        }
    }
}

impl<R: Rule> Optimizer for PerTensor<R> {
    fn update(
        &mut self,
        index: usize,
        learning_rate: f32,
        gradient: &[f32],
        parameters: &mut [f32],
    ) {
        self.rules[index].update(learning_rate, self.decay, gradient, parameters);
    }

    fn mask(&mut self, index: usize, positions: &[u32]) {
        self.rules[index].mask(positions);
    }

    fn save(&self, prefix: &str, state: &mut State) {
        for (name, rule) in self.names.iter().zip(&self.rules) {
            rule.save(&format!("{prefix}{name}/"), state);
        }
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        for (name, rule) in self.names.iter().zip(&mut self.rules) {
            rule.restore(&format!("{prefix}{name}/"), state)?;
        }
        Ok(())
    }
}

/// Sets the elements at these positions to zero.
pub(super) fn clear(values: &mut [f32], positions: &[u32]) {
    for &position in positions {
        values[position as usize] = 0.0;
    }
}

/// Replaces `values` by the entry of the same length.
pub(super) fn restore_floats(
    values: &mut [f32],
    state: &State,
    entry: &str,
) -> Result<(), StateError> {
    let saved = state.floats(entry)?;
    if saved.len() != values.len() {
        return Err(StateError::WrongSize {
            entry: entry.to_owned(),
            found: saved.len(),
            expected: values.len(),
        });
    }
    values.copy_from_slice(saved);
    Ok(())
}
