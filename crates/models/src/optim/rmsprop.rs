//! RMSProp (Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5), with
//! the momentum of later implementations:
//!
//! s ← ρ·s + (1−ρ)·g², v ← m·v + g / (√s + ε), p ← p − lr·v
//!
//! with s = v = 0 at first. Without momentum, as in the lecture, v is the step itself. The mean
//! square is not corrected for its start at 0, so early steps are up to 1/√(1−ρ) times Adam's.

use super::per_tensor::{Rule, Step};

/// The settings of RMSProp.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsPropConfig {
    /// Decay ρ of the mean square, in [0, 1).
    pub rho: f32,
    /// The momentum m, in [0, 1).
    pub momentum: f32,
    /// Keeps the denominator from 0, positive.
    pub epsilon: f32,
}

impl Rule for RmsPropConfig {
    const STATE: &[&str] = &["velocity", "square"];
    const HAS_MOMENTUM: bool = true;

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        let Self { rho, momentum, epsilon } = *self;
        let [velocities, squares] = state else { return };
        let moments = squares.iter_mut().zip(velocities);
        for ((parameter, gradient), (square, velocity)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            let gradient = gradient + step.decay * *parameter;
            *square = rho * *square + (1.0 - rho) * gradient * gradient;
            *velocity = momentum * *velocity + gradient / (square.sqrt() + epsilon);
            *parameter -= step.learning_rate * *velocity;
        }
    }
}
