//! The interface of networks of images.

use std::fmt;

use burn::tensor::Tensor;

use super::layers::Pass;

/// A network of images. Computes one score for each class and image, or class and pixel.
pub(super) trait Network: Send + Sync + fmt::Debug {
    /// `[batch, channels, height, width]` in, `[batch, classes]` or `[batch · height · width, classes]`
    /// out.
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2>;
}
