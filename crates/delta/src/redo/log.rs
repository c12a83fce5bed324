//! Writing a redo log.

use std::fs::{self, File};
use std::io;

use super::content::{New, Patch};
use super::frame::{self, Kind, MAGIC};
use super::lock::Lock;
use super::replay::replay;
use super::{NAME, UNFINISHED};
use crate::files::disk::Disk;
use crate::files::{FileError, refuse_outside};

/// Bytes that are collected before they are written.
const BLOCK: usize = 1 << 20;
/// The most bytes of one frame with successive bytes.
const LONGEST_BYTES: usize = 1 << 23;

/// A log that is being written. It has no effect before [`commit`](Self::commit); dropped before,
/// it is removed.
pub(crate) struct Log<'d, D: Disk> {
    disk: &'d D,
    lock: &'d Lock,
    file: File,
    block: Vec<u8>,
    written: u64,
    frames: u64,
    committed: bool,
}

impl<'d, D: Disk> Log<'d, D> {
    /// Begins a log beside files of these names and lengths, in the folder that is locked.
    ///
    /// # Errors
    /// Errors of the file system; a file that is a link out of the folder; a complete log.
    pub(crate) fn create<'a>(
        disk: &'d D,
        lock: &'d Lock,
        files: impl Iterator<Item = (&'a str, u64)> + Clone,
    ) -> Result<Self, FileError> {
        let folder = lock.folder();
        for (name, _) in files.clone() {
            refuse_outside(folder, &folder.join(name))?;
        }
        let log = folder.join(NAME);
        if fs::exists(&log).map_err(FileError::at(&log))? {
            let reason = "it is the log of another patch; open the weights to complete that patch";
            return Err(FileError::content(&log, reason));
        }
        let path = folder.join(UNFINISHED);
        // A process that was killed may have left it. It is not opened: it may be a link.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FileError::at(&path)(error));
            }
            _ => {}
        }
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(FileError::at(&path))?;
        let block = MAGIC.to_vec();
        let mut log = Self { disk, lock, file, block, written: 0, frames: 0, committed: false };
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

    /// Adds new bytes of a file.
    pub(crate) fn add(&mut self, patch: &Patch<'_>) -> Result<(), FileError> {
        let New::Bytes(bytes) = patch.new else { return self.add_frame(patch) };
        for (at, bytes) in (0u64..).zip(bytes.chunks(LONGEST_BYTES)) {
            let offset = patch.offset + at * LONGEST_BYTES as u64;
            self.add_frame(&Patch { offset, new: New::Bytes(bytes), ..*patch })?;
        }
        Ok(())
    }

    fn add_frame(&mut self, patch: &Patch<'_>) -> Result<(), FileError> {
        patch.write(&mut self.block);
        self.count()
    }

    /// Counts a frame, and writes the block if it is full.
    fn count(&mut self) -> Result<(), FileError> {
        self.frames += 1;
        if self.block.len() < BLOCK { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        let path = self.lock.folder().join(UNFINISHED);
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
        let folder = self.lock.folder();
        let [from, to] = [UNFINISHED, NAME].map(|name| folder.join(name));
        self.disk.sync(&self.file).map_err(FileError::at(&from))?;
        self.disk.rename(&from, &to).map_err(FileError::at(&to))?;
        self.committed = true;
        self.disk.sync_folder(folder).map_err(FileError::at(folder))?;
        replay(self.disk, folder, &self.file)
    }
}

impl<D: Disk> Drop for Log<'_, D> {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: it only takes space.
            let _ = self.disk.remove(&self.lock.folder().join(UNFINISHED));
        }
    }
}
