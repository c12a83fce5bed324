//! An optimizer that adds something of its own to every gradient.

use std::sync::{Arc, PoisonError, RwLock};

use gradwire::{State, StateError};
use gradwire_exchange::Optimizer;

/// What is added, one flat buffer a tensor; whoever made it may change it between two updates.
#[derive(Debug, Clone, Default)]
pub struct Shift(Arc<RwLock<Vec<Vec<f32>>>>);

impl Shift {
    /// Adds these from now on.
    pub fn set(&self, values: Vec<Vec<f32>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = values;
    }

    /// What is added, of each tensor; nothing before anything was [set](Self::set).
    pub fn get(&self) -> Vec<Vec<f32>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An optimizer that takes the gradient and a shift together.
pub struct Shifted {
    inner: Box<dyn Optimizer>,
    shift: Shift,
    sum: Vec<f32>,
}

impl Shifted {
    /// Adds `shift` to what `inner` updates by.
    pub fn new(inner: Box<dyn Optimizer>, shift: Shift) -> Self {
        Self { inner, shift, sum: Vec::new() }
    }
}

impl Optimizer for Shifted {
    fn update(
        &mut self,
        index: usize,
        learning_rate: f32,
        gradient: &[f32],
        parameters: &mut [f32],
    ) {
        let shift = self.shift.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(shift) = shift.get(index) else {
            return self.inner.update(index, learning_rate, gradient, parameters);
        };
        self.sum.clear();
        self.sum.extend(gradient.iter().zip(shift).map(|(gradient, shift)| gradient + shift));
        self.inner.update(index, learning_rate, &self.sum, parameters);
    }

    fn mask(&mut self, index: usize, positions: &[u32]) {
        self.inner.mask(index, positions);
    }

    fn save(&self, prefix: &str, state: &mut State) {
        self.inner.save(prefix, state);
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        self.inner.restore(prefix, state)
    }
}
