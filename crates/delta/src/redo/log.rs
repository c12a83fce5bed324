//! Writing a redo log.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use super::frame::{self, Kind, MAGIC};
use super::replay::replay;
use super::{NAME, UNFINISHED};
use crate::files::FileError;
use crate::files::disk::Disk;

/// Bytes that are collected before they are written.
const BLOCK: usize = 1 << 20;
/// The most bytes of one frame with successive bytes.
const LONGEST_BYTES: usize = 1 << 23;

/// A log that is being written. It has no effect before [`commit`](Self::commit); dropped before,
/// it is removed.
pub(crate) struct Log<'d, D: Disk> {
    disk: &'d D,
    folder: PathBuf,
    /// Locked as long as this lives, also under its final name.
    file: File,
    block: Vec<u8>,
    written: u64,
    frames: u64,
    committed: bool,
}

/// Elements of a file that change: each of `width` bytes, at `offset + width · position`.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    /// The file, as a place in the list of files.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) width: usize,
    /// Increasing.
    pub(crate) positions: &'a [u32],
    pub(crate) values: &'a [u8],
}

impl<'d, D: Disk> Log<'d, D> {
    /// Begins a log beside files of these names and lengths.
    ///
    /// # Errors
    /// Errors of the file system; another process that patches files of the folder.
    pub(crate) fn create<'a>(
        disk: &'d D,
        folder: &Path,
        files: impl Iterator<Item = (&'a str, u64)>,
    ) -> Result<Self, FileError> {
        let path = folder.join(UNFINISHED);
        let busy = || {
            let reason = "another process patches weights in this folder; wait until it ends";
            FileError::content(folder, reason)
        };
        let mut options = File::options();
        options.read(true).write(true).create(true);
        let file = options.open(&path).map_err(FileError::at(&path))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(busy());
        }
        // The process that had it locked before may have been killed after it renamed its log.
        if fs::exists(folder.join(NAME)).map_err(FileError::at(folder))? {
            return Err(busy());
        }
        file.set_len(0).map_err(FileError::at(&path))?;
        let (block, folder) = (MAGIC.to_vec(), folder.to_owned());
        let mut log = Self { disk, folder, file, block, written: 0, frames: 0, committed: false };
        frame::write(&mut log.block, Kind::Files, |out| {
            for (name, len) in files {
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&(name.len() as u16).to_le_bytes());
                out.extend_from_slice(name.as_bytes());
            }
        });
        log.count()?;
        Ok(log)
    }

    /// Adds elements that change.
    pub(crate) fn changes(&mut self, changes: &Changes<'_>) -> Result<(), FileError> {
        frame::write(&mut self.block, Kind::Changes, |out| {
            out.extend_from_slice(&(changes.file as u32).to_le_bytes());
            out.extend_from_slice(&changes.offset.to_le_bytes());
            out.push(changes.width as u8);
            changes.positions.iter().for_each(|at| out.extend_from_slice(&at.to_le_bytes()));
            out.extend_from_slice(changes.values);
        });
        self.count()
    }

    /// Adds successive bytes of a file.
    pub(crate) fn bytes(&mut self, file: usize, offset: u64, new: &[u8]) -> Result<(), FileError> {
        for (at, bytes) in (0u64..).zip(new.chunks(LONGEST_BYTES)) {
            frame::write(&mut self.block, Kind::Bytes, |out| {
                out.extend_from_slice(&(file as u32).to_le_bytes());
                out.extend_from_slice(&(offset + at * LONGEST_BYTES as u64).to_le_bytes());
                out.extend_from_slice(bytes);
            });
            self.count()?;
        }
        Ok(())
    }

    /// Counts a frame, and writes the block if it is full.
    fn count(&mut self) -> Result<(), FileError> {
        self.frames += 1;
        if self.block.len() < BLOCK { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        let path = self.folder.join(UNFINISHED);
        let written = self.disk.write_at(&self.file, &self.block, self.written);
        written.map_err(FileError::at(&path))?;
        self.written += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }

    /// Makes the log count: from here on the files have the new values, even after a crash. Then
    /// writes the values into the files and removes the log.
    ///
    /// # Errors
    /// Errors of the file system. If the log already counts, opening the files again completes it.
    pub(crate) fn commit(mut self) -> Result<(), FileError> {
        let frames = self.frames;
        frame::write(&mut self.block, Kind::End, |out| {
            out.extend_from_slice(&frames.to_le_bytes());
        });
        self.flush()?;
        let [from, to] = [UNFINISHED, NAME].map(|name| self.folder.join(name));
        self.disk.sync(&self.file).map_err(FileError::at(&from))?;
        self.disk.rename(&from, &to).map_err(FileError::at(&to))?;
        self.committed = true;
        self.disk.sync_folder(&self.folder).map_err(FileError::at(&self.folder))?;
        replay(self.disk, &self.folder, &self.file)
    }
}

impl<D: Disk> Drop for Log<'_, D> {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: it only takes space.
            let _ = self.disk.remove(&self.folder.join(UNFINISHED));
        }
    }
}
