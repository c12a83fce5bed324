//! AdaGrad (Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and
//! stochastic optimization", in its diagonal form):
//!
//! s ← s + g², p ← p − lr·g / (√s + ε)
//!
//! with s = 0 at first, so that the first step of every element is lr·sign(g).

use gradwire::{State, StateError};

use super::rule::{Rule, restore_floats};

/// What keeps AdaGrad's steps finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaGradConfig {
    /// Keeps the denominator from 0, positive.
    pub epsilon: f32,
}

/// The sum of one tensor's squared gradients.
#[derive(Debug, Clone)]
pub struct AdaGrad {
    config: AdaGradConfig,
    squares: Vec<f32>,
}

impl AdaGrad {
    /// The state of a tensor with this number of elements before its first update.
    pub fn new(config: AdaGradConfig, elements: usize) -> Self {
        Self { config, squares: vec![0.0; elements] }
    }
}

impl Rule for AdaGrad {
    fn update(&mut self, learning_rate: f32, decay: f32, gradient: &[f32], parameters: &mut [f32]) {
        let AdaGradConfig { epsilon } = self.config;
        let elements = parameters.iter_mut().zip(gradient).zip(&mut self.squares);
        for ((parameter, gradient), squares) in elements {
            let gradient = gradient + decay * *parameter;
            *squares += gradient * gradient;
            *parameter -= learning_rate * gradient / (squares.sqrt() + epsilon);
        }
    }

    fn save(&self, prefix: &str, state: &mut State) {
        state.set_floats(&format!("{prefix}squares"), self.squares.clone());
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        restore_floats(&mut self.squares, state, &format!("{prefix}squares"))
    }
}
