//! The receiver of gradients as they become ready.

use std::fmt;

/// Takes the gradients of a step one by one, from any thread, while the next ones are being
/// computed.
pub trait GradientSink: Send + Sync + fmt::Debug {
    /// Takes the final gradient of tensor `index`. A second gradient of a tensor in the same step
    /// is ignored, and so are gradients between two steps.
    fn ready(&self, index: usize, gradient: &[f32]);
}
