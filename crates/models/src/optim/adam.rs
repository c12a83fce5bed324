//! Adam (Kingma and Ba 2015, Algorithm 1), with the bias corrections folded into the learning rate as
//! its section 2 suggests:
//!
//! m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g², p ← p − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v + ε)
//!
//! with t counted from 1 for each tensor. As `adamw` its weight decay is decoupled from the gradient (Loshchilov and
//! Hutter 2019): p is first multiplied by 1 − lr·decay, except in tensors of one dimension, which do not decay. With
//! `freeze` v and its correction stay what they are after that number of updates, as in 1-bit Adam (Tang et al. 2021);
//! then an update is linear in the gradients.

use gradwire::Tensor;

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
    /// Whether weight decay is decoupled from the gradient.
    pub decoupled: bool,
    /// The number of updates after which mean squares stay what they are; `None`: never.
    pub freeze: Option<u64>,
}

impl AdamConfig {
    /// lr·√(1−β₂ᵗ)/(1−β₁ᵗ).
    fn rate(&self, step: Step) -> f32 {
        let left = |beta: f32, updates| 1.0 - power(f64::from(beta), updates);
        let squares = left(self.beta2, self.freeze.map_or(step.updates, |at| at.min(step.updates)));
        let means = left(self.beta1, step.updates);
        (f64::from(step.learning_rate) * squares.sqrt() / means) as f32
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

    fn decays(&self, tensor: &Tensor) -> bool {
        !self.decoupled || tensor.shape().len() > 1
    }

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        let rate = self.rate(step);
        let Self { beta1, epsilon, decoupled, freeze, .. } = *self;
        let frozen = freeze.is_some_and(|updates| step.updates > updates);
        let (beta2, new) = if frozen { (1.0, 0.0) } else { (self.beta2, 1.0 - self.beta2) };
        let (penalty, kept) = match decoupled {
            true => (0.0, 1.0 - step.learning_rate * step.decay),
            false => (step.decay, 1.0),
        };
        let [means, squares] = state else { return };
        let moments = means.iter_mut().zip(squares);
        for ((parameter, gradient), (mean, square)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            let gradient = gradient + penalty * *parameter;
            *mean = beta1 * *mean + (1.0 - beta1) * gradient;
            *square = beta2 * *square + new * gradient * gradient;
            *parameter = kept * *parameter - rate * *mean / (square.sqrt() + epsilon);
        }
    }
}
