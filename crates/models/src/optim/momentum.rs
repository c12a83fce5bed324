//! Gradient descent with momentum: `v ← m·v + g`, then `p ← p − lr·v`, or, with Nesterov's look-ahead
//! (in the form of Sutskever et al. 2013 that evaluates the gradient at the current parameters),
//! `p ← p − lr·(g + m·v)`. The learning rate is outside `v`, as in TensorFlow and PyTorch.

use gradwire::{State, StateError};

use super::rule::{Rule, clear, restore_floats};

/// The settings of momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MomentumConfig {
    /// The momentum m, in [0, 1).
    pub momentum: f32,
    /// Whether to use Nesterov's form.
    pub nesterov: bool,
}

/// The velocity v of one tensor, 0 at first.
#[derive(Debug, Clone)]
pub struct Momentum {
    config: MomentumConfig,
    velocity: Vec<f32>,
}

impl Momentum {
    /// The state of a tensor with this number of elements before its first update.
    pub fn new(config: MomentumConfig, elements: usize) -> Self {
        Self { config, velocity: vec![0.0; elements] }
    }
}

impl Rule for Momentum {
    fn update(&mut self, learning_rate: f32, decay: f32, gradient: &[f32], parameters: &mut [f32]) {
        let MomentumConfig { momentum, nesterov } = self.config;
        // Without look-ahead the step is v alone; with it, g + m·v.
        let (of_gradient, of_velocity) = if nesterov { (1.0, momentum) } else { (0.0, 1.0) };
        let elements = parameters.iter_mut().zip(gradient).zip(&mut self.velocity);
        for ((parameter, gradient), velocity) in elements {
            let gradient = gradient + decay * *parameter;
            *velocity = momentum * *velocity + gradient;
            *parameter -= learning_rate * (of_gradient * gradient + of_velocity * *velocity);
        }
    }

    fn mask(&mut self, positions: &[u32]) {
        clear(&mut self.velocity, positions);
    }

    fn save(&self, prefix: &str, state: &mut State) {
        state.set_floats(&format!("{prefix}velocity"), self.velocity.clone());
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        restore_floats(&mut self.velocity, state, &format!("{prefix}velocity"))
    }
}
