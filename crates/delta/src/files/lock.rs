//! Files that processes lock. They stay: a file that is renamed or removed might be another one for
//! the process that locks it than for the next.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::error::FileError;
use crate::progress;

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

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

/// Locks a file. If another process has locked it, waits for `patience`, unless the
/// [progress](crate::Progress) is stopped; returns whether the file is locked then. A file system
/// without locks locks nothing and keeps nobody waiting.
pub(crate) fn lock_within(file: &File, patience: Duration) -> bool {
    let start = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() || progress::check().is_err() {
            return false;
        }
        thread::sleep(left.min(PAUSE));
    }
    true
}
