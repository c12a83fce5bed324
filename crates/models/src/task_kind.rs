//! The kinds of tasks, by kind of data.

use std::fmt;

/// The kind of data that a model learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Images, each of one class.
    Images,
    /// Images, each with a mask that has the class of every pixel.
    Segmentation,
    /// Text, token after token.
    Text,
    /// The items that users have taken.
    Ratings,
    /// Data of another crate, which only models of that crate know.
    Other,
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TaskKind::Images => "images by their classes",
            TaskKind::Segmentation => "images by masks",
            TaskKind::Text => "text",
            TaskKind::Ratings => "ratings",
            TaskKind::Other => "data of another crate",
        })
    }
}
