//! Locks of files that are replaced as a whole, such as checkpoints.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::TestbedError;

/// An exclusive lock on a file, held as long as this lives. The system releases the lock of a
/// killed process.
///
/// A lock on the file itself would be lost when the file is replaced, so the lock is on a hidden
/// file next to it. The hidden file is removed with the lock. If a killed process has left one, the
/// next process takes it over.
#[derive(Debug)]
pub struct FileLock {
    place: PathBuf,
    _file: File,
}

impl FileLock {
    /// Locks the file that `path` names directly or through links. `None` if the file system has no
    /// locks, or does not allow making a file.
    ///
    /// # Errors
    /// `Config` if another process has locked it, with the process if it is known; errors of the
    /// file system.
    pub fn new(path: &Path) -> Result<Option<Self>, TestbedError> {
        let place = place(path).map_err(TestbedError::write(path))?;
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(true);
            let Ok(mut file) = options.open(&place) else { return Ok(None) };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(in_use(path, &mut file)),
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(&place);
                    return Ok(None);
                }
            }
            // The previous holder may have removed the file since it was opened here, and another
            // process may have made a new one.
            if is_at(&file, &place) {
                // It serves only the error messages of other processes.
                let _ = file.set_len(0).and_then(|()| write!(file, "{}", process::id()));
                return Ok(Some(Self { place, _file: file }));
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removed while the lock is held, so no other process has locked this file.
        let _ = fs::remove_file(&self.place);
    }
}

/// The hidden file that is locked instead of the file at `path`.
fn place(path: &Path) -> io::Result<PathBuf> {
    let target = gradwire::files::target(path)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(target.with_file_name(format!(".{name}.gradwire-lock")))
}

/// Whether an open file is the file at this path.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let open = file.metadata().map(identity).ok();
        open.is_some() && open == fs::metadata(path).map(identity).ok()
    }
    #[cfg(not(unix))]
    {
        // An open file keeps its name there.
        let _ = file;
        path.exists()
    }
}

fn in_use(path: &Path, file: &mut File) -> TestbedError {
    let mut owner = String::new();
    let known = file.read_to_string(&mut owner).is_ok() && owner.parse::<u32>().is_ok();
    let owner = if known { format!(" (process {owner})") } else { String::new() };
    TestbedError::Config(format!(
        "another run{owner} writes '{}'; wait until it ends, or name another file",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_whatever_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        let lock = FileLock::new(&path).unwrap().expect("this file system has locks");
        let error = FileLock::new(&path).unwrap_err().to_string();
        let owner = format!("process {}", process::id());
        assert!(error.contains("run.state") && error.contains(&owner), "{error}");
        assert!(FileLock::new(&folder.path().join("other.state")).unwrap().is_some());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("run.state", folder.path().join("link")).unwrap();
            assert!(FileLock::new(&folder.path().join("link")).is_err());
            fs::remove_file(folder.path().join("link")).unwrap();
        }
        drop(lock);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // As a killed process leaves it.
        fs::write(folder.path().join(".run.state.gradwire-lock"), "4294967295 and more").unwrap();
        drop(FileLock::new(&path).unwrap().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let absent = folder.path().join("absent/run.state");
        assert!(FileLock::new(&absent).unwrap().is_none());
    }

    #[test]
    fn threads_that_take_turns_never_hold_a_lock_together() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let (path, holders, taken) =
            (folder.path().join("file"), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Ok(lock) = FileLock::new(&path) else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        taken.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
    }
}
