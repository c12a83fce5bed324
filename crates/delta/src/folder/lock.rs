//! The lock of a publisher.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use crate::files::disk::{Disk, System};
use crate::files::{lock_within, open_lock};
use crate::{Error, progress};

/// The file that a publisher has locked. It names the process that locked it last.
const NAME: &str = "lock";
/// The longest name that an error shows.
const LONGEST: u64 = 200;

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
    /// Errors of the file system; [`Error::Busy`]; [`Error::Stopped`].
    pub(super) fn take(folder: &Path, patience: Duration) -> Result<Self, Error> {
        let mut file = open_lock(&folder.join(NAME))?;
        if !lock_within(&file, patience) {
            progress::check()?;
            let (folder, holder) = (folder.to_owned(), holder(&mut file));
            return Err(Error::Busy { folder, holder, patience });
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
