//! Where gradients go as they become ready.

use std::fmt;

/// Takes a step's gradients one by one while others are still being computed; from any thread.
pub trait GradientSink: Send + Sync + fmt::Debug {
    /// Takes the final gradient of tensor `index`. A second gradient of a tensor in the same step is ignored, and so are
    /// gradients between two steps.
    fn ready(&self, index: usize, gradient: &[f32]);
}
