//! Gradients that come before the step they belong to.

use std::fmt;

/// Takes a step's gradients one after the other, while others are still being computed; from any thread.
pub trait GradientSink: Send + Sync + fmt::Debug {
    /// Takes the gradient of tensor `index`, which nothing is added to any more. What comes a second time in a step, or
    /// between two steps, is ignored.
    fn ready(&self, index: usize, gradient: &[f32]);
}
