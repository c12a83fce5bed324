//! Adam (Kingma and Ba 2015, Algorithm 1), with the bias corrections folded into the learning rate
//! as its section 2 suggests:
//!
//! m ← β₁·m + (1−β₁)·g, v ← β₂·v + (1−β₂)·g², p ← p − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v + ε)
//!
//! with t counted from 1 for each tensor. In `adamw` weight decay is decoupled from the gradient
//! (Loshchilov and Hutter 2019): p is first multiplied by 1 − lr·decay, except in tensors of one
//! dimension, which do not decay. With `freeze`, v and its correction no longer change after that
//! number of updates, as in 1-bit Adam (Tang et al. 2021); an update is then linear in the
//! gradients. With `exchange=momentum` it is 1-bit Adam: after the freeze ranks exchange, in place
//! of gradients, their own momentum β₁·m + (1−β₁)·g, and its mean is m. Error feedback keeps the
//! compression error of the momentum. The momentum is sent undivided; each rank divides the mean by
//! √v.
//!
//! The paper sends gradients uncompressed until the freeze; use a schedule for that:
//! `none until 1000 then onebit` with `freeze=1000`. The paper freezes when second moments are
//! stable; here the number of updates is given.
//!
//! Deviations after the freeze, because compression spreads noise over a whole tensor and an update
//! divides the noise by √v:
//!
//! - An element whose v is 0 had no gradient before the freeze. Ranks send 0 as its momentum, m
//!   stays 0, and only decoupled weight decay changes it. In `adam` weight decay is part of the
//!   gradient.
//! - No element moves further in an update than Adam can ever move it: 7.3 learning rates with the
//!   default β₁ and β₂.

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
    /// The number of updates after which second moments no longer change; `None` for no freeze.
    pub freeze: Option<u64>,
    /// Whether ranks exchange their momentum after the freeze, in place of gradients.
    pub exchanges_momentum: bool,
}

impl AdamConfig {
    /// Whether second moments no longer change at this update.
    fn is_frozen(&self, step: Step) -> bool {
        self.freeze.is_some_and(|updates| step.updates > updates)
    }

    /// The factor of the parameters in the penalty added to gradients.
    fn penalty(&self, step: Step) -> f32 {
        if self.decoupled { 0.0 } else { step.decay }
    }

    /// lr·√(1−β₂ᵗ)/(1−β₁ᵗ).
    fn rate(&self, step: Step) -> f32 {
        let left = |beta: f32, updates| 1.0 - power(f64::from(beta), updates);
        let squares = left(self.beta2, self.freeze.map_or(step.updates, |at| at.min(step.updates)));
        let means = left(self.beta1, step.updates);
        (f64::from(step.learning_rate) * squares.sqrt() / means) as f32
    }

    /// The largest update of an element by Adam, in learning rates, for any gradients; infinite if
    /// β₂ ≤ β₁².
    ///
    /// By the Cauchy–Schwarz inequality, m is at most (1−β₁) / √((1−β₂)·(1−β₁²/β₂)) times √v. Bias
    /// corrections make the bound smaller, since x + y ≥ 2·√(x·y) for the powers of β₁²/β₂ and β₂
    /// in it.
    fn largest_update(&self) -> f32 {
        let [beta1, beta2] = [self.beta1, self.beta2].map(f64::from);
        match beta2 - beta1 * beta1 {
            left if left > 0.0 => ((1.0 - beta1) * (beta2 / ((1.0 - beta2) * left)).sqrt()) as f32,
            _ => f32::INFINITY,
        }
    }

    /// The largest allowed update of an element.
    fn limit(&self, step: Step) -> f32 {
        let most = self.largest_update();
        if self.is_frozen(step) && most.is_finite() {
            most * step.learning_rate.abs()
        } else {
            f32::INFINITY
        }
    }
}

/// `base` to an integer power by squaring: only products, so every machine gets the same bits.
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

    fn exchanges_gradients(&self) -> bool {
        !self.exchanges_momentum
    }

    fn to_exchange(
        &self,
        step: Step,
        parameters: &[f32],
        state: &[Vec<f32>],
        gradient: &mut [f32],
    ) {
        if !self.exchanges_momentum || !self.is_frozen(step) {
            return;
        }
        let (beta1, penalty) = (self.beta1, self.penalty(step));
        let moments = state[0].iter().zip(&state[1]);
        for ((gradient, parameter), (mean, square)) in
            gradient.iter_mut().zip(parameters).zip(moments)
        {
            let momentum = beta1 * mean + (1.0 - beta1) * (*gradient + penalty * parameter);
            *gradient = had_gradient(*square) * momentum;
        }
    }

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        let rate = self.rate(step);
        let Self { epsilon, decoupled, .. } = *self;
        let frozen = self.is_frozen(step);
        let shares = |beta: f32| (beta, 1.0 - beta);
        let (beta2, new) = if frozen { (1.0, 0.0) } else { shares(self.beta2) };
        // The mean of the ranks' momentum is the momentum, and includes the penalty.
        let is_momentum = frozen && self.exchanges_momentum;
        let (beta1, share) = if is_momentum { (0.0, 1.0) } else { shares(self.beta1) };
        let penalty = if is_momentum { 0.0 } else { self.penalty(step) };
        let kept = if decoupled { 1.0 - step.learning_rate * step.decay } else { 1.0 };
        let limit = self.limit(step);
        let [means, squares] = state else { return };
        let moments = means.iter_mut().zip(squares);
        for ((parameter, gradient), (mean, square)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            let gradient = gradient + penalty * *parameter;
            *mean = beta1 * *mean + share * gradient;
            if frozen {
                *mean *= had_gradient(*square);
            }
            *square = beta2 * *square + new * gradient * gradient;
            let change = (rate * *mean / (square.sqrt() + epsilon)).clamp(-limit, limit);
            *parameter = kept * *parameter - change;
        }
    }
}

/// 1 for an element with a second moment, otherwise 0: the size of its updates would be unknown. A
/// factor, so NaN stays NaN and is found.
fn had_gradient(square: f32) -> f32 {
    f32::from(square != 0.0)
}
