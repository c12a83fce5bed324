//! Writing results.

mod file_lock;

use std::fs::{File, TryLockError};
use std::path::Path;

pub use file_lock::FileLock;

use crate::TestbedError;

/// Writes a file of results: [`gradwire::files::write_atomic`], in a folder that is made if it is
/// missing.
///
/// # Errors
/// The errors of the file system.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), TestbedError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| gradwire::files::write_atomic(path, bytes))
        .map_err(TestbedError::write(path))
}

/// Makes a folder of results if it is missing, and [locks](lock) it against other processes as long
/// as the result lives. Has no effect on a file system without locks.
///
/// # Errors
/// `Config` if another process has it; errors of the file system.
pub fn lock(folder: &Path) -> Result<Option<File>, TestbedError> {
    std::fs::create_dir_all(folder).map_err(TestbedError::write(folder))?;
    let Ok(handle) = File::open(folder) else { return Ok(None) };
    match handle.try_lock() {
        Err(TryLockError::WouldBlock) => Err(TestbedError::Config(format!(
            "another process writes results to '{}'; wait until it ends, or name another folder",
            folder.display()
        ))),
        _ => Ok(Some(handle)),
    }
}

/// Checks that a file of results can be written, before runs take hours: makes its folder if it is
/// missing, and leaves an existing file as it is.
///
/// # Errors
/// The errors of the file system.
pub fn check_writable(path: &Path) -> Result<(), TestbedError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| gradwire::files::check_writable(path)).map_err(TestbedError::write(path))
}
