//! Names of files that other files mention.

use std::fs;
use std::path::{Component, Path};

use super::error::FileError;

/// Whether a name stays within the folder that it is joined to: it has no separators, and is
/// neither `.` nor `..`.
pub(crate) fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let one = matches!(components.next(), Some(Component::Normal(_)));
    // Separators and drives of other systems, too: files travel.
    one && components.next().is_none() && !name.contains(['/', '\\', ':', '\0'])
}

/// Refuses a path in a folder that is a link out of the folder.
///
/// # Errors
/// Such a link; errors of the file system, in particular if the file is missing.
pub(crate) fn refuse_outside(folder: &Path, path: &Path) -> Result<(), FileError> {
    let [real, file] =
        [folder, path].map(|path| fs::canonicalize(path).map_err(FileError::at(path)));
    if file?.starts_with(real?) {
        return Ok(());
    }
    let reason = "it is a link that leads out of its folder; use a folder with the file itself";
    Err(FileError::content(path, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_a_folder() {
        assert!(
            is_plain("model-00001-of-00002.safetensors") && is_plain("..a") && is_plain("größe")
        );
        for name in ["", ".", "..", "/", "/a", "a/", "a/b", "../a", "..\\a", "c:a", "a\0b", "./a"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
