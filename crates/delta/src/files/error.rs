//! Errors of files.

use std::io;
use std::path::{Path, PathBuf};

use gradwire_bits::io_error::remedy;

/// What is wrong with a file, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system refused an operation.
    #[error("'{}': {source}{}", shown(path), remedy(source))]
    System {
        /// The file or folder.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// The content or the kind of a file is not what it should be.
    #[error("'{}': {reason}", shown(path))]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
}

impl FileError {
    /// For `map_err` after an operation on `path`. An error that names its file stays as it is.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| {
            let named = source.downcast::<FileError>();
            named.unwrap_or_else(|source| FileError::System { path: path.to_owned(), source })
        }
    }

    /// The content of `path` is refused.
    pub(crate) fn content(path: &Path, reason: impl Into<String>) -> Self {
        FileError::Content { path: path.to_owned(), reason: reason.into() }
    }
}

/// For writers, whose errors are those of the system: this one names the file, too.
impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        let kind = match &error {
            FileError::System { source, .. } => source.kind(),
            FileError::Content { .. } => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

/// A path in one line: characters that a terminal obeys or hides are escaped.
pub(crate) fn shown(path: &Path) -> String {
    let is_hidden = |character: char| {
        let hidden = ['\u{ad}', '\u{61c}', '\u{feff}'];
        character.is_control()
            || hidden.contains(&character)
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(character, '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut shown = String::new();
    for character in path.display().to_string().chars() {
        match is_hidden(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_a_path_in_one_line_and_the_remedy() {
        let path = Path::new("größe/a\nb\u{1b}[31m\u{202e}");
        let error = FileError::at(path)(io::ErrorKind::NotFound.into()).to_string();
        assert!(error.starts_with(r"'größe/a\nb\u{1b}[31m\u{202e}': "), "{error}");
        assert!(error.ends_with("; check the path"), "{error}");
        let full = FileError::at(path)(io::ErrorKind::StorageFull.into()).to_string();
        assert!(full.contains("; make room on the disk"), "{full}");
        let broken = FileError::at(Path::new("disk"))(io::Error::other("the disk is broken"));
        assert_eq!(broken.to_string(), "'disk': the disk is broken");
        let refused = FileError::content(path, "it is empty; copy it again").to_string();
        assert_eq!(refused, r"'größe/a\nb\u{1b}[31m\u{202e}': it is empty; copy it again");
    }
}
