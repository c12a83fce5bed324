//! The lock of a publisher.

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::files::disk::{Disk, System};
use crate::files::open_lock;

/// The file that a publisher has locked. It names the process that locked it last.
const NAME: &str = "lock";
/// The longest name that an error shows.
const LONGEST: u64 = 200;
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Keeps other processes from publishing to a folder as long as it lives, if the file system has
/// locks.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks a folder. Waits for `patience` if another process has locked it.
    ///
    /// # Errors
    /// Errors of the file system; [`Error::Busy`].
    pub(super) fn take(folder: &Path, patience: Duration) -> Result<Self, Error> {
        let (mut file, start) = (open_lock(&folder.join(NAME))?, Instant::now());
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                let (folder, holder) = (folder.to_owned(), holder(&mut file));
                return Err(Error::Busy { folder, holder, patience });
            }
            thread::sleep(left.min(PAUSE));
        }
        // Only an error shows it, so it need not be there.
        let _ = file.set_len(0).and_then(|()| System.write_at(&file, own_name().as_bytes(), 0));
        Ok(Self { _file: file })
    }
}

/// The name of this process.
fn own_name() -> String {
    let id = std::process::id();
    match fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => format!("process {id} on {}", host.trim()),
        Err(_) => format!("process {id}"),
    }
}

/// The name of the process that has the lock, as far as it is known.
fn holder(file: &mut File) -> String {
    let mut name = String::new();
    match file.take(LONGEST).read_to_string(&mut name) {
        Ok(1..) => name.escape_debug().to_string(),
        _ => "its name is not known".to_owned(),
    }
}
