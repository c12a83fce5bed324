//! Why a model cannot be built.

use super::ImageShape;
use crate::TaskKind;

/// A model that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The images are too small for the model's pooling.
    #[error(
        "{model} needs images of at least {least}×{least}, but these are {shape}; choose another \
         model (mlp takes any size)"
    )]
    TooSmall {
        /// The model.
        model: String,
        /// The images.
        shape: ImageShape,
        /// The smallest height and width.
        least: usize,
    },
    /// Images that cannot be halved often enough, or do not have two classes.
    #[error(
        "{model} needs images with two classes of pixels and sides that are multiples of {sides}, but these are \
         {shape} with {} classes; crop or pad the images, or choose another data set",
        shape.classes
    )]
    Sides {
        /// The model.
        model: &'static str,
        /// The images.
        shape: ImageShape,
        /// The sides must be multiples of this number.
        sides: usize,
    },
    /// Images without pixels, or a task without classes.
    #[error(
        "a model needs images with at least one pixel and two classes, but these are {shape} with \
         {} classes; choose another data set",
        shape.classes
    )]
    Empty {
        /// The images.
        shape: ImageShape,
    },
    /// More parameters than fit in memory.
    #[error(
        "the model has {parameters} parameters on this data, and they do not fit into memory \
         ({:.1} GB); choose a smaller model, or smaller images, texts or tables of ratings",
        4e-9 * *parameters as f64
    )]
    TooLarge {
        /// The number of parameters, or `u64::MAX` if they are more.
        parameters: u64,
    },
    /// A model for one kind of data on another kind.
    #[error("{model} learns {learns}, not {task}; choose {instead}")]
    Task {
        /// The model.
        model: String,
        /// The task that it can learn.
        learns: TaskKind,
        /// The task of the data.
        task: TaskKind,
        /// Models that learn it.
        instead: String,
    },
    /// A text with fewer than two different symbols.
    #[error(
        "a language model needs at least two different symbols, but this text has {symbols}; choose another text"
    )]
    Vocabulary {
        /// The number of different symbols.
        symbols: usize,
    },
    /// The reason of a model of another crate.
    #[error("{0}")]
    Other(String),
}
