//! The models, as the papers have them.
//!
//! A [`Model`] classifies images, a [`LanguageModel`] predicts the next token of a text, a [`Recommender`] which items
//! a user takes. All compute loss and gradients of a batch, and evaluate. Parameters and gradients are flat `f32`
//! vectors, one for each of their tensors, and stay outside: a model of images keeps nothing but the running statistics
//! of batch normalisation, one of text nothing at all.

mod alexnet;
mod cifar_cnn;
mod conv;
#[cfg(test)]
mod deep_tests;
mod densenet;
mod imagenet_resnet;
mod kind;
mod layers;
mod lenet5;
mod lstm;
mod matmul;
mod mlp;
mod model;
mod ncf;
#[cfg(test)]
mod ncf_tests;
mod resnet;
mod resnet9;

mod tap;
#[cfg(test)]
mod tap_tests;
#[cfg(test)]
mod tests;
mod unet;
#[cfg(test)]
mod unet_tests;
mod vgg;

use std::fmt;

use burn::tensor::Tensor;

pub use kind::{ModelKind, UnknownModel};
pub use lstm::{Chunk, Dropout, LanguageModel, Memory, UNROLL};
pub use mlp::Hidden;
pub use model::{Model, Score};
pub use ncf::cross_entropy;
pub use ncf::{Pairs, Recommender};

pub use layers::Statistics;
pub use model::floats_of;

use layers::Pass;

/// What a model can learn from, of which there are four kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Images, each of one class.
    Images,
    /// Images with a mask each, which tells the class of every pixel.
    Masks,
    /// Text, token after token.
    Text,
    /// Which users have taken which items.
    Ratings,
}

impl Task {
    /// Models that learn it, in words.
    fn models(self) -> &'static str {
        match self {
            Task::Images => "mlp, lenet5 or a resnet",
            Task::Masks => "unet",
            Task::Text => "charlstm or wordlstm",
            Task::Ratings => "ncf",
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::Images => "images by their classes",
            Task::Masks => "images by masks",
            Task::Text => "text",
            Task::Ratings => "ratings",
        })
    }
}

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
    /// Images that cannot be halved as often as the model needs, or with other than two classes.
    #[error(
        "{model} tells two classes of pixels apart in images whose sides are multiples of {sides}, these are {shape} with {} classes; give such images",
        shape.classes
    )]
    Sides {
        /// The model.
        model: &'static str,
        /// The images.
        shape: ImageShape,
        /// What the sides must be a multiple of.
        sides: usize,
    },
    /// Images without pixels, or a task without classes.
    #[error("a model needs images with at least one pixel and two classes, these are {shape} with {} classes", shape.classes)]
    Empty {
        /// The images.
        shape: ImageShape,
    },
    /// A model of one kind of data for another.
    #[error("{model} learns {}, not {task}; choose {}", .model.task(), .task.models())]
    Task {
        /// The model.
        model: ModelKind,
        /// What it should learn.
        task: Task,
    },
    /// A text that is always the same symbol.
    #[error("a language model needs at least two different symbols, this text has {symbols}")]
    Vocabulary {
        /// How many there are.
        symbols: usize,
    },
}

/// What a network computes: one score for each class and image, or class and pixel.
trait Network: Send + Sync + fmt::Debug {
    /// `[batch, channels, height, width]` in, `[batch, classes]` or `[batch · height · width, classes]`
    /// out.
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2>;
}
