//! The outer optimizer of local steps (Douillard et al. 2023, "DiLoCo", Algorithm 1).

use gradwire::{State, StateError};
use gradwire_exchange::Optimizer;

/// Applies the mean of the workers' updates with an optimizer, as the negative of a gradient. Every
/// worker holds the same state, because it sees the same mean.
pub(crate) struct OuterOptimizer {
    optimizer: Box<dyn Optimizer>,
    rate: f32,
    /// The negative of the update of a tensor.
    gradient: Vec<f32>,
}

impl OuterOptimizer {
    /// An optimizer with this learning rate, whatever the learning rate of the local steps.
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

#[cfg(test)]
mod tests {
    use gradwire::Tensor;
    use gradwire_models::optim::OptimizerKind;

    use super::*;

    #[test]
    fn two_rounds_of_diloco_by_hand() {
        let nesterov: OptimizerKind = "nesterov".parse().unwrap();
        let tensors = [Tensor::new("a", &[1])];
        let mut outer = OuterOptimizer::new(nesterov.build(&tensors, 0.0), 0.7);
        let mut parameters = [0.0];
        // v = −1, and 0.7·(1 + 0.9·1); then v = −0.9 − 0, and 0.7·0.9·0.9 more. The rate of the
        // local steps has no effect.
        for (change, expected) in [(1.0, 1.33), (0.0, 1.897)] {
            outer.update(0, 123.0, &[change], &mut parameters);
            assert!((parameters[0] - expected).abs() < 1e-6, "{parameters:?}");
        }
        let mut state = State::new();
        outer.save("outer/", &mut state);
        let mut other = OuterOptimizer::new(nesterov.build(&tensors, 0.0), 0.7);
        other.restore("outer/", &state).unwrap();
        let mut resumed = parameters;
        outer.update(0, 0.0, &[0.5], &mut parameters);
        other.update(0, 0.0, &[0.5], &mut resumed);
        assert_eq!(parameters, resumed);
    }
}
