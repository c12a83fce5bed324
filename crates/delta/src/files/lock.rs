//! Files that processes lock. They stay: a file that is renamed or removed might be another one for
//! the process that locks it than for the next.

use std::fs::File;
use std::path::Path;

use super::error::FileError;

/// Opens a file to lock it; makes it if it is missing.
///
/// # Errors
/// Errors of the file system; a link.
pub(crate) fn open_lock(path: &Path) -> Result<File, FileError> {
    if path.is_symlink() {
        return Err(FileError::content(path, "it is a link; remove it"));
    }
    let mut options = File::options();
    // Reading, too: a pipe that is opened only for writing would wait for its reader.
    let opened = options.read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(FileError::at(path))
}
