//! The stream of a delta or snapshot: magic bytes, then frames with checksums.

use std::io::{self, Read};

use gradwire_bits::varint;

use crate::{Error, RunId, StateHash};

/// The first bytes of a delta. Transfers that change line ends damage them.
pub(crate) const MAGIC: [u8; 8] = *b"\x89GWD\r\n\x1a\n";
/// The last bytes of a delta.
const END_MAGIC: [u8; 4] = *b"DWG\x89";
const VERSION: u8 = 1;
const HEADER: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;
/// Kind, length and checksum.
const PREFIX: usize = 9;
/// Target hash, number of records, length, magic.
const END_LEN: usize = 36;
/// The longest payload of a frame: a record of uncompressed elements is shorter.
const LONGEST: u32 = 1 << 27;
/// Records are joined up to this many bytes.
const FULL: usize = 1 << 16;

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// All tensors.
    Snapshot,
    /// The changes from the base version to the target version.
    Delta,
}

/// One of the streams that make up an update: each rank that holds shards of the tensors writes
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Which one, from 0.
    pub index: u64,
    /// How many there are.
    pub count: u64,
}

impl Share {
    /// The only stream of an update.
    pub const WHOLE: Self = Self { index: 0, count: 1 };
}

/// The start of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Delta or snapshot.
    pub kind: Kind,
    /// Whether tensors are named by name and rows, not by their number among the base's.
    pub named: bool,
    /// Whether positions and differences can be read without the base.
    pub portable: bool,
    /// The run of the trainer.
    pub run: RunId,
    /// The version that a delta changes; the target version in a snapshot.
    pub base: u64,
    /// The version that the stream gives.
    pub target: u64,
    /// The hash of the base, of this share alone; 0 in a snapshot.
    pub base_hash: StateHash,
    /// Which of the update's streams this is.
    pub share: Share,
}

impl Header {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.push(match self.kind {
            Kind::Snapshot => 0,
            Kind::Delta => 1,
        });
        out.push(u8::from(self.named) | u8::from(self.portable) << 1);
        out.extend_from_slice(&self.run.0);
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(&self.target.to_le_bytes());
        out.extend_from_slice(&self.base_hash.to_bytes());
        varint::write(self.share.index, out);
        varint::write(self.share.count, out);
    }

    fn read(mut payload: &[u8]) -> Result<Self, Error> {
        let short = Error::Damaged("its header is too short");
        let Some((&version, rest)) = payload.split_first() else { return Err(short) };
        if version != VERSION {
            return Err(Error::FormatVersion(version));
        }
        payload = rest;
        let Some((&[kind, flags], rest)) = payload.split_first_chunk() else { return Err(short) };
        let Some((run, rest)) = rest.split_first_chunk() else { return Err(short) };
        let Some((base, rest)) = rest.split_first_chunk() else { return Err(short) };
        let Some((target, rest)) = rest.split_first_chunk() else { return Err(short) };
        let Some((base_hash, mut rest)) = rest.split_first_chunk() else { return Err(short) };
        let share = Share { index: varint::read(&mut rest)?, count: varint::read(&mut rest)? };
        // The weights of a snapshot alone give its hash.
        let has_base = base != target || *base_hash != [0; 16];
        if flags > 3
            || kind > 1
            || kind == 0 && has_base
            || share.index >= share.count
            || !rest.is_empty()
        {
            return Err(Error::Damaged("its header has values that no writer writes"));
        }
        Ok(Self {
            kind: if kind == 0 { Kind::Snapshot } else { Kind::Delta },
            named: flags & 1 != 0,
            portable: flags & 2 != 0,
            run: RunId(*run),
            base: u64::from_le_bytes(*base),
            target: u64::from_le_bytes(*target),
            base_hash: StateHash::from_bytes(*base_hash),
            share,
        })
    }
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The hash of the target, of this share alone.
    pub target_hash: StateHash,
    /// The number of records.
    pub records: u64,
    /// The number of bytes of the whole stream.
    pub len: u64,
}

/// Where a writer puts the bytes of a stream: called with each frame, in order.
pub type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Writes a stream.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    frame: Vec<u8>,
    records: u64,
    len: u64,
}

impl FrameWriter {
    pub(crate) fn new(header: &Header) -> Self {
        let mut writer = Self { frame: MAGIC.to_vec(), records: 0, len: 0 };
        let start = MAGIC.len();
        writer.frame.extend_from_slice(&[0; PREFIX]);
        header.write(&mut writer.frame);
        seal(HEADER, &mut writer.frame[start..]);
        writer
    }

    /// Adds a record, and passes a full frame on.
    pub(crate) fn record(
        &mut self,
        record: impl FnOnce(&mut Vec<u8>),
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        if self.len == 0 {
            self.pass(sink)?;
        }
        if self.frame.is_empty() {
            self.frame.extend_from_slice(&[0; PREFIX]);
        }
        record(&mut self.frame);
        self.records += 1;
        if self.frame.len() < FULL {
            return Ok(());
        }
        seal(RECORDS, &mut self.frame);
        self.pass(sink)
    }

    /// Writes the payload of a frame of another stream. Its records are not counted.
    pub(crate) fn copy(&mut self, payload: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        if self.len == 0 {
            self.pass(sink)?;
        }
        self.frame.extend_from_slice(&[0; PREFIX]);
        self.frame.extend_from_slice(payload);
        seal(RECORDS, &mut self.frame);
        self.pass(sink)
    }

    /// Counts records that [`copy`](Self::copy) wrote.
    pub(crate) fn count(&mut self, records: u64) {
        self.records += records;
    }

    /// Ends the stream.
    pub(crate) fn end(mut self, target_hash: StateHash, sink: &mut Sink<'_>) -> io::Result<End> {
        if self.len > 0 && !self.frame.is_empty() {
            seal(RECORDS, &mut self.frame);
        }
        self.pass(sink)?;
        let len = self.len + (PREFIX + END_LEN) as u64;
        self.frame.extend_from_slice(&[0; PREFIX]);
        self.frame.extend_from_slice(&target_hash.to_bytes());
        self.frame.extend_from_slice(&self.records.to_le_bytes());
        self.frame.extend_from_slice(&len.to_le_bytes());
        self.frame.extend_from_slice(&END_MAGIC);
        seal(END, &mut self.frame);
        self.pass(sink)?;
        Ok(End { target_hash, records: self.records, len })
    }

    fn pass(&mut self, sink: &mut Sink<'_>) -> io::Result<()> {
        if !self.frame.is_empty() {
            sink(&self.frame)?;
        }
        self.len += self.frame.len() as u64;
        self.frame.clear();
        Ok(())
    }
}

/// Fills in kind, length and checksum at the start of a frame.
fn seal(kind: u8, frame: &mut [u8]) {
    frame[0] = kind;
    let len = u32::try_from(frame.len() - PREFIX).expect("a record is below 128 MiB");
    frame[1..5].copy_from_slice(&len.to_le_bytes());
    let checksum = checksum(&frame[..5], &frame[PREFIX..]);
    frame[5..PREFIX].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(start: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(start);
    hasher.update(payload);
    hasher.finalize()
}

/// Reads a stream. It needs no more memory than the longest frame.
#[derive(Debug)]
pub struct FrameReader<R> {
    input: R,
    header: Header,
    read: u64,
    end: Option<End>,
}

impl<R: Read> FrameReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If the bytes are no stream of this format, damaged or truncated.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        let found = read_up_to(&mut input, &mut magic)?;
        if magic[..found] != MAGIC[..found] || found == 0 {
            return Err(Error::NotADelta);
        }
        if found < magic.len() {
            return Err(Error::Truncated("within the header"));
        }
        let mut payload = Vec::new();
        let mut read = MAGIC.len() as u64;
        let kind = frame(&mut input, &mut payload, &mut read)?;
        if kind != HEADER {
            return Err(Error::Damaged("the header is missing"));
        }
        Ok(Self { input, header: Header::read(&payload)?, read, end: None })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next records into `payload`, replacing its content; `false` at the end of the
    /// stream.
    ///
    /// # Errors
    /// If the bytes are damaged or truncated.
    pub fn records(&mut self, payload: &mut Vec<u8>) -> Result<bool, Error> {
        if self.end.is_some() {
            return Ok(false);
        }
        match frame(&mut self.input, payload, &mut self.read)? {
            RECORDS => Ok(true),
            END => {
                self.end = Some(read_end(payload, self.read)?);
                Ok(false)
            }
            _ => Err(Error::Damaged("a frame has an unknown kind")),
        }
    }

    /// The end of the stream; `None` before all records have been read.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }
}

/// Checks that a stream of `len` bytes is complete, by its last 12 bytes: cheap if they can be
/// read without the others.
///
/// # Errors
/// If the stream is truncated, or something follows it.
pub fn check_ending(ending: [u8; 12], len: u64) -> Result<(), Error> {
    let (stated, magic) = ending.split_at(8);
    let stated = u64::from_le_bytes(stated.try_into().expect("it has 8 bytes"));
    if magic != END_MAGIC || stated > len {
        return Err(Error::Truncated("before its end mark"));
    }
    if stated < len {
        return Err(Error::Damaged("it is longer than its end mark says"));
    }
    Ok(())
}

fn read_end(payload: &[u8], read: u64) -> Result<End, Error> {
    let wrong = Error::Damaged("its end has values that no writer writes");
    let Ok(payload) = <&[u8; END_LEN]>::try_from(payload) else { return Err(wrong) };
    let (hash, rest) = payload.split_first_chunk::<16>().expect("it has 36 bytes");
    let (numbers, magic) = rest.split_at(16);
    let (numbers, _) = numbers.as_chunks::<8>();
    let [records, len] = [0, 1].map(|i| u64::from_le_bytes(numbers[i]));
    if magic != END_MAGIC || len != read {
        return Err(wrong);
    }
    Ok(End { target_hash: StateHash::from_bytes(*hash), records, len })
}

/// Reads a frame and checks it.
fn frame(input: &mut impl Read, payload: &mut Vec<u8>, read: &mut u64) -> Result<u8, Error> {
    const CUT: &str = "before its end mark";
    let mut prefix = [0; PREFIX];
    if read_up_to(input, &mut prefix)? < PREFIX {
        return Err(Error::Truncated(CUT));
    }
    let len = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if len > LONGEST {
        return Err(Error::Damaged("a frame is longer than writers make them"));
    }
    payload.clear();
    // Grows with the bytes that arrive, whatever the length says.
    let found = input.by_ref().take(u64::from(len)).read_to_end(payload)?;
    if found < len as usize {
        return Err(Error::Truncated(CUT));
    }
    let stated = u32::from_le_bytes([prefix[5], prefix[6], prefix[7], prefix[8]]);
    if checksum(&prefix[..5], payload) != stated {
        return Err(Error::Damaged("the checksum of a frame does not match"));
    }
    *read += (PREFIX + found) as u64;
    Ok(prefix[0])
}

/// Fills `bytes` unless the input ends before; returns the number of bytes read.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < bytes.len() {
        match input.read(&mut bytes[found..]) {
            Ok(0) => break,
            Ok(more) => found += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_states_no_base() {
        let header = |base, hash| Header {
            kind: Kind::Snapshot,
            named: false,
            portable: false,
            run: RunId([1; 16]),
            base,
            target: 5,
            base_hash: StateHash([0, hash]),
            share: Share::WHOLE,
        };
        for (base, hash, is_right) in [(5, 0, true), (4, 0, false), (5, 1, false)] {
            let (mut stream, end) = (Vec::new(), StateHash([0, hash]));
            let mut sink = |frame: &[u8]| {
                stream.extend_from_slice(frame);
                Ok(())
            };
            FrameWriter::new(&header(base, hash)).end(end, &mut sink).unwrap();
            assert_eq!(FrameReader::new(&stream[..]).is_ok(), is_right, "{base} {hash}");
        }
    }
}
