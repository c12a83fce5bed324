//! The lock of a folder whose files are patched in place.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::replay::replay;
use super::{LOCK, NAME};
use crate::files::disk::Disk;
use crate::files::{FileError, lock_within, open_lock, open_regular};

/// Keeps other processes from patching files of a folder as long as it lives, if the file system
/// has locks.
#[derive(Debug)]
pub(crate) struct Lock {
    folder: PathBuf,
    _file: File,
}

impl Lock {
    /// Locks a folder.
    ///
    /// # Errors
    /// Errors of the file system; another process that has locked the folder.
    pub(crate) fn take(folder: &Path) -> Result<Self, FileError> {
        let file = open_lock(&folder.join(LOCK))?;
        if !lock_within(&file, Duration::ZERO) {
            let reason = "another process patches weights in this folder; wait until it ends";
            return Err(FileError::content(folder, reason));
        }
        Ok(Self { folder: folder.to_owned(), _file: file })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Completes a patch of files in the folder, if one was interrupted.
    ///
    /// # Errors
    /// Errors of the file system, in particular if the files cannot be written; a log that is
    /// damaged.
    pub(crate) fn complete(&self, disk: &impl Disk) -> Result<(), FileError> {
        let path = self.folder.join(NAME);
        match fs::exists(&path).map_err(FileError::at(&path))? {
            true => replay(disk, &self.folder, &open_regular(&path)?),
            false => Ok(()),
        }
    }
}

/// Completes a patch of files in this folder, if one was interrupted. Waits if another process
/// patches files of the folder.
///
/// # Errors
/// As for [`Lock::complete`]; `Interrupted` if the [progress](crate::Progress) is stopped.
pub(crate) fn complete(disk: &impl Disk, folder: &Path) -> Result<(), FileError> {
    let path = folder.join(NAME);
    if !fs::exists(&path).map_err(FileError::at(&path))? {
        return Ok(());
    }
    let file = open_lock(&folder.join(LOCK))?;
    // If the file system has no locks, two processes may write the same values, which does no harm.
    if !lock_within(&file, Duration::MAX) {
        return Err(FileError::at(folder)(ErrorKind::Interrupted.into()));
    }
    Lock { folder: folder.to_owned(), _file: file }.complete(disk)
}
