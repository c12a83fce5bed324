//! Errors of files.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a file, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system refused an operation.
    #[error("'{}': {source}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// The content or the kind of a file is not what it should be.
    #[error("'{}': {reason}", path.display())]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
}

impl FileError {
    /// For `map_err` after an operation on `path`.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| FileError::System { path: path.to_owned(), source }
    }

    /// The content of `path` is refused.
    pub(crate) fn content(path: &Path, reason: impl Into<String>) -> Self {
        FileError::Content { path: path.to_owned(), reason: reason.into() }
    }
}
