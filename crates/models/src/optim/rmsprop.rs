//! RMSProp (Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5), with the
//! momentum that later implementations give it:
//!
//! s ← ρ·s + (1−ρ)·g², v ← m·v + g / (√s + ε), p ← p − lr·v
//!
//! with s = v = 0 at first. Without momentum, as in the lecture, v is the step itself. The mean square
//! is not corrected for its start at 0, so that early steps are up to 1/√(1−ρ) times those of Adam.

use gradwire::{State, StateError};

use super::rule::{Rule, clear, restore_floats};

/// How far back the mean square and the step look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsPropConfig {
    /// Decay ρ of the mean square, in [0, 1).
    pub rho: f32,
    /// The momentum m, in [0, 1).
    pub momentum: f32,
    /// Keeps the denominator from 0, positive.
    pub epsilon: f32,
}

/// Mean square and velocity of one tensor.
#[derive(Debug, Clone)]
pub struct RmsProp {
    config: RmsPropConfig,
    square: Vec<f32>,
    velocity: Vec<f32>,
}

impl RmsProp {
    /// The state of a tensor with this number of elements before its first update.
    pub fn new(config: RmsPropConfig, elements: usize) -> Self {
        Self { config, square: vec![0.0; elements], velocity: vec![0.0; elements] }
    }
}

impl Rule for RmsProp {
    fn update(&mut self, learning_rate: f32, decay: f32, gradient: &[f32], parameters: &mut [f32]) {
        let RmsPropConfig { rho, momentum, epsilon } = self.config;
        let moments = self.square.iter_mut().zip(&mut self.velocity);
        for ((parameter, gradient), (square, velocity)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            let gradient = gradient + decay * *parameter;
            *square = rho * *square + (1.0 - rho) * gradient * gradient;
            *velocity = momentum * *velocity + gradient / (square.sqrt() + epsilon);
            *parameter -= learning_rate * *velocity;
        }
    }

    /// The mean square, a scale, stays.
    fn mask(&mut self, positions: &[u32]) {
        clear(&mut self.velocity, positions);
    }

    fn save(&self, prefix: &str, state: &mut State) {
        state.set_floats(&format!("{prefix}square"), self.square.clone());
        state.set_floats(&format!("{prefix}velocity"), self.velocity.clone());
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        restore_floats(&mut self.square, state, &format!("{prefix}square"))?;
        restore_floats(&mut self.velocity, state, &format!("{prefix}velocity"))
    }
}
