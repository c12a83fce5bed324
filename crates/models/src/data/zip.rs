//! Zip archives: stored and deflated files, as the format's specification (PKWARE's APPNOTE 6.3)
//! lays them out. Encrypted archives, parts of archives and those beyond 4 GiB are refused.
//!
//! The directory is at the end, followed by a record of [`END`] bytes and a comment. Each of its entries has the offset
//! of a file's own header, which the content follows. With 65 535 files or more the record is preceded by a larger one,
//! of zip64, and by the offset of that.

use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::{self, Read};

/// Bytes of the record at the end, without its comment.
const END: usize = 22;
const END_MARK: &[u8; 4] = b"PK\x05\x06";
/// Bytes of zip64's record with the offset of its own end record.
const LOCATOR: usize = 20;
const LOCATOR_MARK: &[u8; 4] = b"PK\x06\x07";
/// Bytes of zip64's end record.
const LARGE_END: usize = 56;
const LARGE_END_MARK: &[u8; 4] = b"PK\x06\x06";
/// Bytes of an entry of the directory, without its names.
const ENTRY: usize = 46;
const ENTRY_MARK: &[u8; 4] = b"PK\x01\x02";
/// Bytes of a file's own header, without its names.
const HEADER: usize = 30;
const HEADER_MARK: &[u8; 4] = b"PK\x03\x04";

/// A file, or a folder, whose name ends with a slash.
pub(super) struct ZipEntry<'a> {
    /// Its path.
    pub(super) name: String,
    deflated: bool,
    crc: u32,
    packed: &'a [u8],
}

/// The entries of an archive, or what is wrong with it.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<ZipEntry<'_>>, &'static str> {
    let end = (0..=bytes.len().saturating_sub(END).min(0xffff))
        .map_while(|comment| bytes.len().checked_sub(END + comment))
        .find(|&at| bytes[at..].starts_with(END_MARK))
        .ok_or("it does not end with a directory")?;
    let Directory { count, start: mut at, end } = directory(bytes, end)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let entry = part(bytes, at, ENTRY)?;
        let name = part(bytes, at + ENTRY, short(entry, 28)?)?;
        entries.push(read_entry(bytes, entry, name)?);
        at += ENTRY + name.len() + short(entry, 30)? + short(entry, 32)?;
    }
    if at != end {
        return Err("its directory has other entries than it says");
    }
    Ok(entries)
}

/// The number of files, and where the directory begins and ends.
struct Directory {
    count: usize,
    start: usize,
    end: usize,
}

/// Reads the end record at `end`, or that of zip64 before it.
fn directory(bytes: &[u8], end: usize) -> Result<Directory, &'static str> {
    let locator = end.checked_sub(LOCATOR).filter(|&at| bytes[at..].starts_with(LOCATOR_MARK));
    let Some(locator) = locator else {
        return Ok(Directory {
            count: short(bytes, end + 10)?,
            start: word(bytes, end + 16)?,
            end,
        });
    };
    let at = long(bytes, locator + 8)?;
    let record = part(bytes, at, LARGE_END)?;
    if !record.starts_with(LARGE_END_MARK) {
        return Err("its directory leads nowhere");
    }
    Ok(Directory { count: long(record, 32)?, start: long(record, 48)?, end: at })
}

fn read_entry<'a>(
    bytes: &'a [u8],
    entry: &[u8],
    name: &[u8],
) -> Result<ZipEntry<'a>, &'static str> {
    let start = word(entry, 42)?;
    let header = part(bytes, start, HEADER)?;
    if !entry.starts_with(ENTRY_MARK) || !header.starts_with(HEADER_MARK) {
        return Err("its directory leads nowhere");
    }
    if short(entry, 8)? & 1 == 1 {
        return Err("it is encrypted");
    }
    let deflated = match short(entry, 10)? {
        0 => false,
        8 => true,
        _ => return Err("it is packed in a way that is not supported; pack it with deflate"),
    };
    let content = start + HEADER + short(header, 26)? + short(header, 28)?;
    Ok(ZipEntry {
        name: String::from_utf8_lossy(name).into_owned(),
        deflated,
        crc: word(entry, 16)? as u32,
        packed: part(bytes, content, word(entry, 20)?)?,
    })
}

impl<'a> ZipEntry<'a> {
    /// Whether it is a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Its content. Reading fails at the end if the checksum is wrong.
    pub(super) fn reader(&self) -> impl Read + use<'a> {
        let inner: Box<dyn Read + 'a> = match self.deflated {
            true => Box::new(DeflateDecoder::new(self.packed)),
            false => Box::new(self.packed),
        };
        Checked { inner, sum: Crc::new(), expected: self.crc }
    }
}

struct Checked<'a> {
    inner: Box<dyn Read + 'a>,
    sum: Crc,
    expected: u32,
}

impl Read for Checked<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.sum.update(&out[..count]);
        if count == 0 && !out.is_empty() && self.sum.sum() != self.expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a checksum is wrong"));
        }
        Ok(count)
    }
}

fn part(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], &'static str> {
    let end = at.checked_add(length);
    end.and_then(|end| bytes.get(at..end)).ok_or("it ends too early")
}

fn short(bytes: &[u8], at: usize) -> Result<usize, &'static str> {
    let part = part(bytes, at, 2)?;
    Ok(usize::from(u16::from_le_bytes([part[0], part[1]])))
}

fn long(bytes: &[u8], at: usize) -> Result<usize, &'static str> {
    let part = part(bytes, at, 8)?.first_chunk().expect("eight bytes");
    usize::try_from(u64::from_le_bytes(*part)).map_err(|_| "it ends too early")
}

fn word(bytes: &[u8], at: usize) -> Result<usize, &'static str> {
    let part = part(bytes, at, 4)?;
    Ok(u32::from_le_bytes([part[0], part[1], part[2], part[3]]) as usize)
}
