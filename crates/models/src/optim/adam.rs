//! Adam (Kingma and Ba 2015, Algorithm 1), with the bias corrections folded into the learning rate as
//! its section 2 suggests:
//!
//! m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g², p ← p − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v + ε)
//!
//! with t counted from 1 for each tensor.

use super::per_tensor::{Rule, Step};

/// The settings of Adam.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Decay β₁ of the mean, in [0, 1).
    pub beta1: f32,
    /// Decay β₂ of the mean square, in [0, 1).
    pub beta2: f32,
    /// Keeps the denominator from 0, positive.
    pub epsilon: f32,
}

impl AdamConfig {
    /// lr·√(1−β₂ᵗ)/(1−β₁ᵗ).
    fn rate(&self, step: Step) -> f32 {
        let left = |beta: f32| 1.0 - power(f64::from(beta), step.updates);
        (f64::from(step.learning_rate) * left(self.beta2).sqrt() / left(self.beta1)) as f32
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

impl Rule for AdamConfig {
    const STATE: &[&str] = &["mean", "square"];
    const HAS_MOMENTUM: bool = true;
    const COUNTS_UPDATES: bool = true;

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        let rate = self.rate(step);
        let Self { beta1, beta2, epsilon } = *self;
        let [means, squares] = state else { return };
        let moments = means.iter_mut().zip(squares);
        for ((parameter, gradient), (mean, square)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            let gradient = gradient + step.decay * *parameter;
            *mean = beta1 * *mean + (1.0 - beta1) * gradient;
            *square = beta2 * *square + (1.0 - beta2) * gradient * gradient;
            *parameter -= rate * *mean / (square.sqrt() + epsilon);
        }
    }
}
