//! Writing the values of a redo log into the files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::NAME;
use super::frame::{Frames, Kind};
use crate::files::FileError;
use crate::files::disk::{Disk, read_at};
use crate::files::names::is_plain;

/// Completes a patch of files in this folder, if one was interrupted. Waits if another process is
/// doing so.
///
/// # Errors
/// Errors of the file system, in particular if the files cannot be written; a log that is damaged.
pub(crate) fn complete(disk: &impl Disk, folder: &Path) -> Result<(), FileError> {
    let path = folder.join(NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::at(&path)(error)),
    };
    // If the file system has no locks, two processes may write the same values, which does no harm.
    let _ = file.lock();
    match fs::exists(&path).map_err(FileError::at(&path))? {
        true => replay(disk, folder, &file),
        false => Ok(()),
    }
}

/// Writes the values of a complete log into the files, syncs them and removes the log.
pub(super) fn replay(disk: &impl Disk, folder: &Path, log: &File) -> Result<(), FileError> {
    let path = folder.join(NAME);
    let damaged = || {
        FileError::content(
            &path,
            "this log of a patch in place is damaged, and the weights beside it may be patched in \
             part; copy the weights again, and remove this file",
        )
    };
    let frames = || {
        let frames = Frames::new(log).map_err(FileError::at(&path))?;
        frames.ok_or_else(damaged)
    };
    if !is_complete(&mut frames()?).map_err(FileError::at(&path))? {
        return Err(damaged());
    }
    let (mut frames, mut files, mut block) = (frames()?, Vec::new(), Vec::new());
    while let Some((kind, payload)) = frames.next().map_err(FileError::at(&path))? {
        match kind {
            Kind::Files => files = open(folder, payload, damaged)?,
            Kind::Changes => {
                let (file, changes) = Changes::read(&files, payload).ok_or_else(damaged)?;
                let written = changes.write(disk, file, &mut block);
                written.map_err(FileError::at(folder))?;
            }
            Kind::Bytes => {
                let (file, offset, bytes) = place(&files, payload).ok_or_else(damaged)?;
                disk.write_at(file, bytes, offset).map_err(FileError::at(folder))?;
            }
            Kind::End => break,
        }
    }
    for file in &files {
        disk.sync(file).map_err(FileError::at(folder))?;
    }
    disk.remove(&path).map_err(FileError::at(&path))?;
    disk.sync_folder(folder).map_err(FileError::at(folder))
}

/// Whether all frames of a log are there and undamaged.
fn is_complete(frames: &mut Frames<'_>) -> io::Result<bool> {
    for count in 0u64.. {
        match frames.next()? {
            Some((Kind::End, payload)) => {
                let counted =
                    payload.try_into().is_ok_and(|bytes| u64::from_le_bytes(bytes) == count);
                return Ok(counted && count > 0 && frames.ended());
            }
            Some((kind, _)) if (kind == Kind::Files) == (count == 0) => {}
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Opens the files that a log lists, if they have the lengths that it states.
fn open(
    folder: &Path,
    mut list: &[u8],
    damaged: impl Fn() -> FileError,
) -> Result<Vec<File>, FileError> {
    let mut files = Vec::new();
    while !list.is_empty() {
        let ((len, name), rest) = listed(list).ok_or_else(&damaged)?;
        let path = folder.join(name);
        let mut options = File::options();
        let file = options.read(true).write(true).open(&path).map_err(FileError::at(&path))?;
        if file.metadata().map_err(FileError::at(&path))?.len() != len {
            return Err(FileError::content(
                &path,
                format!(
                    "it is not the file that '{NAME}' patches; restore the file or remove the log"
                ),
            ));
        }
        files.push(file);
        list = rest;
    }
    Ok(files)
}

/// The first length and name of a list of files, and the rest of the list.
fn listed(list: &[u8]) -> Option<((u64, &str), &[u8])> {
    let (len, rest) = list.split_first_chunk()?;
    let (name_len, rest) = rest.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*name_len)))?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_plain(name))?;
    Some(((u64::from_le_bytes(*len), name), rest))
}

/// The file and the offset at the start of a payload, and what follows.
fn place<'a, 'b>(files: &'a [File], payload: &'b [u8]) -> Option<(&'a File, u64, &'b [u8])> {
    let (file, rest) = payload.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    Some((files.get(u32::from_le_bytes(*file) as usize)?, u64::from_le_bytes(*offset), rest))
}

/// Elements that change.
struct Changes<'a> {
    offset: u64,
    width: usize,
    positions: &'a [u8],
    values: &'a [u8],
}

impl<'a> Changes<'a> {
    fn read<'f>(files: &'f [File], payload: &'a [u8]) -> Option<(&'f File, Self)> {
        let (file, offset, rest) = place(files, payload)?;
        let (&width, rest) = rest.split_first()?;
        let width = usize::from(width);
        let count = rest.len() / (4 + width);
        let (positions, values) = rest.split_at(4 * count);
        (width > 0 && values.len() == count * width)
            .then_some((file, Self { offset, width, positions, values }))
    }

    /// Writes them: reads the block from the first to the last, which one write replaces.
    fn write(&self, disk: &impl Disk, file: &File, block: &mut Vec<u8>) -> io::Result<()> {
        let position = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) as usize;
        let (positions, _) = self.positions.as_chunks::<4>();
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else {
            return Ok(());
        };
        let (first, last) = (position(first), position(last));
        let Some(count) = (last + 1).checked_sub(first) else { return Ok(()) };
        let offset = self.offset + (first * self.width) as u64;
        block.resize(count * self.width, 0);
        read_at(file, block, offset)?;
        for (at, value) in positions.iter().zip(self.values.chunks_exact(self.width)) {
            let at = position(at).wrapping_sub(first).saturating_mul(self.width);
            if let Some(place) = block.get_mut(at..at.saturating_add(self.width)) {
                place.copy_from_slice(value);
            }
        }
        disk.write_at(file, block, offset)
    }
}
