//! Writing the values of a redo log into the files.

use std::fs::File;
use std::io;
use std::path::Path;

use super::NAME;
use super::content::{Listed, New, Patch, check, position};
use super::frame::Frames;
use crate::files::disk::{Disk, read_at};
use crate::files::{FileError, open_regular, refuse_outside};

/// Checks a log, writes its values into the files, syncs them and removes the log.
///
/// # Errors
/// Errors of the file system, in particular if the files cannot be written; a log that is damaged;
/// files that are not those of the log. If the log or a file is refused, no file has changed.
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
    let listed = check(&mut frames()?).map_err(FileError::at(&path))?.ok_or_else(damaged)?;
    let files = listed.iter().map(|file| open(folder, file)).collect::<Result<Vec<_>, _>>()?;
    let (mut frames, mut block) = (frames()?, Vec::new());
    while let Some((kind, payload)) = frames.next().map_err(FileError::at(&path))? {
        let Some(patch) = Patch::read(kind, payload) else { continue };
        let file = files.get(patch.file).ok_or_else(damaged)?;
        write(disk, file, &patch, &mut block).map_err(FileError::at(folder))?;
    }
    for file in &files {
        disk.sync(file).map_err(FileError::at(folder))?;
    }
    disk.remove(&path).map_err(FileError::at(&path))?;
    disk.sync_folder(folder).map_err(FileError::at(folder))
}

/// Opens a file for writing, if it is in the folder and has the length that the log states.
fn open(folder: &Path, listed: &Listed) -> Result<File, FileError> {
    let path = folder.join(&listed.name);
    refuse_outside(folder, &path)?;
    open_regular(&path)?;
    let mut options = File::options();
    let file = options.read(true).write(true).open(&path).map_err(FileError::at(&path))?;
    if file.metadata().map_err(FileError::at(&path))?.len() != listed.len {
        return Err(FileError::content(
            &path,
            format!("it is not the file that '{NAME}' patches; restore the file or remove the log"),
        ));
    }
    Ok(file)
}

/// Writes a patch. For elements it reads the block from the first to the last, which one write
/// replaces.
fn write(disk: &impl Disk, file: &File, patch: &Patch<'_>, block: &mut Vec<u8>) -> io::Result<()> {
    let (width, positions, values) = match patch.new {
        New::Bytes(bytes) => return disk.write_at(file, bytes, patch.offset),
        New::Elements { width, positions, values } => (width, positions, values),
    };
    let (Some(&first), Some(&last)) = (positions.first(), positions.last()) else {
        return Ok(());
    };
    let (first, last) = (position(first), position(last));
    let offset = patch.offset + (first * width) as u64;
    block.resize((last + 1 - first) * width, 0);
    read_at(file, block, offset)?;
    for (&at, value) in positions.iter().zip(values.chunks_exact(width)) {
        let at = (position(at) - first) * width;
        block[at..at + width].copy_from_slice(value);
    }
    disk.write_at(file, block, offset)
}
