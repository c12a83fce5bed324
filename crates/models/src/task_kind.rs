//! The kinds of data there are, and what models learn from them.

use std::fmt;

/// What a model can learn from, of which there are four kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Images, each of one class.
    Images,
    /// Images with a mask each, which tells the class of every pixel.
    Segmentation,
    /// Text, token after token.
    Text,
    /// Which users have taken which items.
    Ratings,
}

impl TaskKind {
    /// Whether it is learned from images: examples that can be taken in any order, with gradients known layer by
    /// layer.
    pub fn is_of_images(self) -> bool {
        matches!(self, TaskKind::Images | TaskKind::Segmentation)
    }

    /// Models that learn it, for messages.
    pub(crate) fn models(self) -> &'static str {
        match self {
            TaskKind::Images => "mlp, lenet5 or a resnet",
            TaskKind::Segmentation => "unet",
            TaskKind::Text => "charlstm or wordlstm",
            TaskKind::Ratings => "ncf",
        }
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TaskKind::Images => "images by their classes",
            TaskKind::Segmentation => "images by masks",
            TaskKind::Text => "text",
            TaskKind::Ratings => "ratings",
        })
    }
}
