//! The operations that change a disk, behind a trait: tests interrupt a sequence of them anywhere.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// What changes files. [`System`] is the only one outside tests.
pub(crate) trait Disk {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Waits until what was written to the file is on the disk.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Gives a file another name; replaces a file of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a folder are on the disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The operating system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct System;

impl Disk for System {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // Windows has no such operation.
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    }
}

/// Fills `bytes` from `offset` of a file, without moving a cursor: threads may share the file.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset);
    #[cfg(windows)]
    {
        let (mut bytes, mut offset) = (bytes, offset);
        while !bytes.is_empty() {
            let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes = &mut bytes[read..];
            offset += read as u64;
        }
        Ok(())
    }
}

fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, offset);
    #[cfg(windows)]
    {
        let (mut bytes, mut offset) = (bytes, offset);
        while !bytes.is_empty() {
            let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
            bytes = &bytes[written..];
            offset += written as u64;
        }
        Ok(())
    }
}

/// The folder that holds a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
pub(crate) mod faults {
    //! A disk that fails after some operations, as a process that is killed.

    use super::*;
    use std::cell::Cell;

    /// Performs `left` operations, half of one more if that is a write, and none after.
    #[derive(Debug)]
    pub(crate) struct Failing {
        left: Cell<u64>,
    }

    impl Failing {
        pub(crate) fn after(operations: u64) -> Self {
            Self { left: Cell::new(operations) }
        }

        fn step(&self) -> io::Result<()> {
            match self.left.get() {
                0 => Err(io::Error::other("injected")),
                left => {
                    self.left.set(left - 1);
                    Ok(())
                }
            }
        }
    }

    impl Disk for Failing {
        fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
            if self.left.get() == 1 {
                self.left.set(0);
                System.write_at(file, &bytes[..bytes.len() / 2], offset)?;
            }
            self.step()?;
            System.write_at(file, bytes, offset)
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            self.step()?;
            System.sync(file)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.step()?;
            System.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            self.step()?;
            System.remove(path)
        }

        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            self.step()?;
            System.sync_folder(folder)
        }
    }
}
