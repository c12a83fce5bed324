//! The models, as the papers have them.
//!
//! A [`Model`] computes loss and gradients of a batch, and evaluates. Parameters and gradients are
//! flat `f32` vectors, one for each of [`Model::tensors`], and stay outside: a model keeps nothing but
//! the running statistics of batch normalisation.

mod conv;
mod kind;
mod layers;
mod lenet5;
mod mlp;
mod model;
mod resnet;

#[cfg(test)]
mod tests;

use std::fmt;

use burn::tensor::Tensor;

pub use kind::{ModelKind, UnknownModel};
pub use model::{Model, Score};

pub(crate) use layers::Statistics;
pub(crate) use model::floats_of;

use layers::Pass;

/// The shape of a classification task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageShape {
    /// Channels of an image.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Number of classes.
    pub classes: usize,
}

impl ImageShape {
    /// Values in an image.
    pub fn elements(&self) -> usize {
        self.channels * self.height * self.width
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.height, self.width, self.channels)
    }
}

/// A model that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The images are too small for the model's pooling.
    #[error(
        "{model} needs images of at least {least}×{least}, these are {shape}; choose another model (mlp takes any size)"
    )]
    TooSmall {
        /// The model.
        model: &'static str,
        /// The images.
        shape: ImageShape,
        /// The smallest height and width.
        least: usize,
    },
    /// Images without pixels, or a task without classes.
    #[error("a model needs images with at least one pixel and two classes, these are {shape} with {} classes", shape.classes)]
    Empty {
        /// The images.
        shape: ImageShape,
    },
}

/// What a network computes: one score for each class and image.
trait Network: Send + Sync + fmt::Debug {
    /// `[batch, channels, height, width]` in, `[batch, classes]` out.
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2>;
}
