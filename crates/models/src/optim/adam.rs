//! Adam (Kingma and Ba 2015, Algorithm 1), with the bias corrections folded into the learning rate as
//! its section 2 suggests:
//!
//! m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g², p ← p − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v + ε)
//!
//! with t counted from 1 for each tensor.

use gradwire::{State, StateError};

use super::rule::{Rule, clear, restore_floats};

/// Decay rates of the two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Decay β₁ of the mean, in [0, 1).
    pub beta1: f32,
    /// Decay β₂ of the mean square, in [0, 1).
    pub beta2: f32,
    /// Keeps the denominator from 0, positive.
    pub epsilon: f32,
}

/// Moments and number of updates of one tensor.
#[derive(Debug, Clone)]
pub struct Adam {
    config: AdamConfig,
    mean: Vec<f32>,
    square: Vec<f32>,
    updates: u64,
}

impl Adam {
    /// The state of a tensor with this number of elements before its first update.
    pub fn new(config: AdamConfig, elements: usize) -> Self {
        Self { config, mean: vec![0.0; elements], square: vec![0.0; elements], updates: 0 }
    }

    /// lr·√(1−β₂ᵗ)/(1−β₁ᵗ).
    fn rate(&self, learning_rate: f32) -> f32 {
        let left = |beta: f32| 1.0 - power(f64::from(beta), self.updates);
        (f64::from(learning_rate) * left(self.config.beta2).sqrt() / left(self.config.beta1)) as f32
    }
}

/// `base` to a whole power by squaring: only products, so every machine gets the same bits.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

impl Rule for Adam {
    fn update(&mut self, learning_rate: f32, decay: f32, gradient: &[f32], parameters: &mut [f32]) {
        self.updates += 1;
        let rate = self.rate(learning_rate);
        let AdamConfig { beta1, beta2, epsilon } = self.config;
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((parameter, gradient), (mean, square)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            let gradient = gradient + decay * *parameter;
            *mean = beta1 * *mean + (1.0 - beta1) * gradient;
            *square = beta2 * *square + (1.0 - beta2) * gradient * gradient;
            *parameter -= rate * *mean / (square.sqrt() + epsilon);
        }
    }

    /// The mean is the momentum; the mean square, a scale, stays.
    fn mask(&mut self, positions: &[u32]) {
        clear(&mut self.mean, positions);
    }

    fn save(&self, prefix: &str, state: &mut State) {
        state.set_floats(&format!("{prefix}mean"), self.mean.clone());
        state.set_floats(&format!("{prefix}square"), self.square.clone());
        state.set_number(&format!("{prefix}updates"), self.updates);
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        restore_floats(&mut self.mean, state, &format!("{prefix}mean"))?;
        restore_floats(&mut self.square, state, &format!("{prefix}square"))?;
        self.updates = state.number(&format!("{prefix}updates"))?;
        Ok(())
    }
}
