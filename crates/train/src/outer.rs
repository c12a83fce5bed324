//! The outer optimizer of local steps (Douillard et al. 2023, "DiLoCo", Algorithm 1).

use gradwire::{State, StateError};
use gradwire_exchange::Optimizer;

/// Applies the mean of the workers' updates with an optimizer, as the negative of a gradient. Every worker holds the same
/// state, as it sees the same mean.
pub(crate) struct OuterOptimizer {
    optimizer: Box<dyn Optimizer>,
    rate: f32,
    /// The negative of the update of a tensor.
    gradient: Vec<f32>,
}

impl OuterOptimizer {
    /// An optimizer with this learning rate, whatever that of the local steps.
    pub(crate) fn new(optimizer: Box<dyn Optimizer>, rate: f32) -> Self {
        Self { optimizer, rate, gradient: Vec::new() }
    }
}

impl Optimizer for OuterOptimizer {
    fn update(&mut self, index: usize, _: f32, change: &[f32], parameters: &mut [f32]) {
        self.gradient.clear();
        self.gradient.extend(change.iter().map(|change| -change));
        self.optimizer.update(index, self.rate, &self.gradient, parameters);
    }

    fn save(&self, prefix: &str, state: &mut State) {
        self.optimizer.save(prefix, state);
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        self.optimizer.restore(prefix, state)
    }
}
