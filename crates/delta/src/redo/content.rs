//! What the frames of a redo log say. A log may come with a folder that somebody else made, so all
//! of it is checked before the first byte is written.

use std::io;

use super::frame::{self, Frames, Kind};
use crate::files::names::is_plain;
use crate::part::PART;

/// A file that a log patches.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    /// Its length, which a patch does not change.
    pub(super) len: u64,
}

/// New bytes of a file.
#[derive(Debug)]
pub(crate) struct Patch<'a> {
    /// The file, as a place in the list of files.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) new: New<'a>,
}

/// The bytes of a patch.
#[derive(Debug)]
pub(crate) enum New<'a> {
    /// Successive bytes.
    Bytes(&'a [u8]),
    /// Elements of `width` bytes, each `width` times its position behind the offset. The positions
    /// are little-endian, increase, and are below [`PART`].
    Elements { width: usize, positions: &'a [[u8; 4]], values: &'a [u8] },
}

/// The files of a log; `None` if a frame is missing or damaged, or would write outside its file.
pub(super) fn check(frames: &mut Frames<'_>) -> io::Result<Option<Vec<Listed>>> {
    let files = match frames.next()? {
        Some((Kind::Files, payload)) => list(payload),
        _ => None,
    };
    let Some(files) = files else { return Ok(None) };
    for count in 1u64.. {
        match frames.next()? {
            Some((Kind::End, payload)) => {
                let counted =
                    payload.try_into().is_ok_and(|bytes| u64::from_le_bytes(bytes) == count);
                return Ok((counted && frames.ended()).then_some(files));
            }
            Some((kind, payload)) if Patch::read(kind, payload).is_some_and(|p| p.fits(&files)) => {
            }
            _ => break,
        }
    }
    Ok(None)
}

fn list(mut list: &[u8]) -> Option<Vec<Listed>> {
    let mut files = Vec::new();
    while !list.is_empty() {
        let (len, rest) = list.split_first_chunk()?;
        let (name_len, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*name_len)))?;
        let name = std::str::from_utf8(name).ok().filter(|name| is_plain(name))?;
        files.push(Listed { name: name.to_owned(), len: u64::from_le_bytes(*len) });
        list = rest;
    }
    Some(files)
}

impl<'a> Patch<'a> {
    /// Appends a frame with the patch.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let kind = match self.new {
            New::Bytes(_) => Kind::Bytes,
            New::Elements { .. } => Kind::Changes,
        };
        frame::write(out, kind, |out| {
            out.extend_from_slice(&(self.file as u32).to_le_bytes());
            out.extend_from_slice(&self.offset.to_le_bytes());
            match self.new {
                New::Bytes(bytes) => out.extend_from_slice(bytes),
                New::Elements { width, positions, values } => {
                    out.push(width as u8);
                    out.extend_from_slice(positions.as_flattened());
                    out.extend_from_slice(values);
                }
            }
        });
    }

    /// Reads the payload of a frame; `None` if the frame is of another kind or no writer made it.
    pub(super) fn read(kind: Kind, payload: &'a [u8]) -> Option<Self> {
        let (file, rest) = payload.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let new = match kind {
            Kind::Changes => elements(rest)?,
            Kind::Bytes => New::Bytes(rest),
            Kind::Files | Kind::End => return None,
        };
        let file = u32::from_le_bytes(*file) as usize;
        Some(Self { file, offset: u64::from_le_bytes(*offset), new })
    }

    /// Whether the bytes are within the file.
    fn fits(&self, files: &[Listed]) -> bool {
        let span = match &self.new {
            New::Bytes(bytes) => bytes.len() as u64,
            New::Elements { width, positions, .. } => {
                positions.last().map_or(0, |&last| (position(last) as u64 + 1) * *width as u64)
            }
        };
        let end = self.offset.checked_add(span);
        files.get(self.file).zip(end).is_some_and(|(file, end)| end <= file.len)
    }
}

fn elements(rest: &[u8]) -> Option<New<'_>> {
    let (&width, rest) = rest.split_first()?;
    let width = usize::from(width);
    if !matches!(width, 1 | 2 | 4 | 8) {
        return None;
    }
    let count = rest.len() / (4 + width);
    let (positions, values) = rest.split_at(4 * count);
    let (positions, _) = positions.as_chunks::<4>();
    let increasing = positions.is_sorted_by(|&a, &b| position(a) < position(b));
    let inside = positions.last().is_none_or(|&last| position(last) < PART);
    (increasing && inside && values.len() == count * width).then_some(New::Elements {
        width,
        positions,
        values,
    })
}

/// The position that these bytes state.
pub(super) fn position(bytes: [u8; 4]) -> usize {
    u32::from_le_bytes(bytes) as usize
}
