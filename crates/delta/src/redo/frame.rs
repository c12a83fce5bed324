//! The frames of a redo log.

use std::fs::File;
use std::io::{self, Read};

/// The first bytes of a log.
pub(super) const MAGIC: [u8; 8] = *b"\x89gwredo\x01";
/// Bytes before the payload of a frame.
const HEAD: usize = 9;
/// The longest payload: the values and positions of a part, with room for its description.
const LONGEST: u32 = 1 << 24;

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The names and lengths of the files.
    Files = 0,
    /// Elements of a file that change.
    Changes = 1,
    /// Successive bytes of a file.
    Bytes = 2,
    /// The number of frames before.
    End = 3,
}

/// Appends a frame whose payload the function appends.
pub(super) fn write(out: &mut Vec<u8>, kind: Kind, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[kind as u8, 0, 0, 0, 0, 0, 0, 0, 0]);
    payload(out);
    let len = (out.len() - start - HEAD) as u32;
    debug_assert!(len <= LONGEST);
    out[start + 1..start + 5].copy_from_slice(&len.to_le_bytes());
    let crc = checksum(&out[start..start + 5], &out[start + HEAD..]);
    out[start + 5..start + HEAD].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// Reads frames one by one into the same memory.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    file: io::BufReader<&'a File>,
    /// Bytes of the file that are left.
    left: u64,
    payload: Vec<u8>,
}

impl<'a> Frames<'a> {
    /// Begins at the start of a file. `None` if it does not begin with [`MAGIC`].
    pub(super) fn new(mut file: &'a File) -> io::Result<Option<Self>> {
        io::Seek::rewind(&mut file)?;
        let len = file.metadata()?.len();
        let mut file = io::BufReader::new(file);
        let mut magic = [0; MAGIC.len()];
        if len < MAGIC.len() as u64 {
            return Ok(None);
        }
        file.read_exact(&mut magic)?;
        let left = len - MAGIC.len() as u64;
        Ok((magic == MAGIC).then_some(Self { file, left, payload: Vec::new() }))
    }

    /// The next frame. `None` if the file has ended, or is damaged.
    pub(super) fn next(&mut self) -> io::Result<Option<(Kind, &[u8])>> {
        let mut head = [0; HEAD];
        if self.left < HEAD as u64 {
            return Ok(None);
        }
        self.file.read_exact(&mut head)?;
        self.left -= HEAD as u64;
        let [kind, len @ .., c0, c1, c2, c3] = head;
        let kind = match kind {
            0 => Kind::Files,
            1 => Kind::Changes,
            2 => Kind::Bytes,
            3 => Kind::End,
            _ => return Ok(None),
        };
        let len = u32::from_le_bytes(len);
        if len > LONGEST || u64::from(len) > self.left {
            return Ok(None);
        }
        self.payload.resize(len as usize, 0);
        self.file.read_exact(&mut self.payload)?;
        self.left -= u64::from(len);
        let right = checksum(&head[..5], &self.payload) == u32::from_le_bytes([c0, c1, c2, c3]);
        Ok(right.then_some((kind, self.payload.as_slice())))
    }

    /// Whether the file has ended.
    pub(super) fn ended(&self) -> bool {
        self.left == 0
    }
}
