//! Symbols in four streams.
//!
//! The first ⌈n/4⌉ of n symbols are the first stream, the next ⌈n/4⌉ the second, and so on. The
//! lengths of the first three streams in bytes come first, a little-endian `u32` each, then the
//! streams, each as [`Code::encode`] writes it. A decoder follows four chains of table lookups at
//! the same time; within a chain, each lookup waits for the one before.

use alloc::vec::Vec;

use super::{Code, TABLE_BITS};
use crate::bit_io::window;
use crate::quarters::{LENGTHS, STREAMS, put_lengths, quarters, quarters_mut, starts};
use crate::reserve::try_room;
use crate::{BitReader, DecodeError};

/// The longest code that streams may have.
pub const STREAMS_BITS: u32 = TABLE_BITS;
/// The most bytes beyond a single stream: the lengths, and the padding of three streams.
pub const STREAMS_EXTRA: usize = LENGTHS + STREAMS - 1;
/// The number of table entries that one window covers.
const GROUP: usize = 4;
/// Pairs are looked up if a lookup gives at least this many symbols on average, because it takes
/// longer.
const WORTHWHILE: f32 = 1.6;

const WRONG_LENGTH: DecodeError = DecodeError::Corrupt("a Huffman stream is longer than its codes");

impl Code {
    /// Appends the symbols' codes in four streams.
    ///
    /// # Panics
    /// As [`encode`](Self::encode), and if a code is longer than [`STREAMS_BITS`] or a stream than
    /// `u32::MAX` bytes.
    pub fn encode_streams(&self, symbols: &[u16], out: &mut Vec<u8>) {
        assert!(self.longest <= STREAMS_BITS, "streams have no codes of {} bits", self.longest);
        if self.single.is_some() || symbols.is_empty() {
            return;
        }
        let start = out.len();
        out.extend_from_slice(&[0; LENGTHS]);
        let lengths = quarters(symbols).map(|quarter| {
            let before = out.len();
            self.encode(quarter, out);
            out.len() - before
        });
        let [a, b, c, _] = lengths;
        put_lengths([a, b, c], &mut out[start..]);
    }

    /// Fills `out` with symbols decoded from streams at the start of `bytes`, and returns the
    /// number of bytes read. See [`decode`](Self::decode).
    ///
    /// # Errors
    /// As for [`decode`](Self::decode), and `OutOfMemory`, and `Corrupt` if the code has longer
    /// codes than [`STREAMS_BITS`], or a stream is longer than its codes.
    ///
    /// # Panics
    /// If the code was fitted instead of read.
    pub fn decode_streams(&mut self, bytes: &[u8], out: &mut [u16]) -> Result<usize, DecodeError> {
        if self.longest > STREAMS_BITS {
            return Err(DecodeError::Corrupt("a Huffman code is too long for streams"));
        }
        if !self.has_stream(bytes, out)? {
            return Ok(0);
        }
        let starts = starts(bytes)?;
        try_room(&mut self.pairs, self.table.len())?;
        let paired = self.symbols_per_lookup() >= WORTHWHILE;
        if paired {
            self.fill_pairs();
        }
        let table = self.fixed_table().expect("no code is longer than the index of a fixed table");
        let mut parts = quarters_mut(out);
        let mut positions = starts.map(|start| 8 * start as u64);
        let done = if paired {
            let pairs = self.pairs.as_slice().try_into().expect("it was filled");
            decode_pairs(pairs, bytes, &mut positions, &mut parts)
        } else {
            [decode_singles(table, bytes, &mut positions, &mut parts); STREAMS]
        };
        let mut used = LENGTHS;
        for (i, part) in parts.into_iter().enumerate() {
            let end = starts.get(i + 1).copied();
            let mut reader = BitReader::at(&bytes[..end.unwrap_or(bytes.len())], positions[i]);
            self.decode_stream(&mut reader, &mut part[done[i]..])?;
            used = reader.finish()?;
            if end.is_some_and(|end| used != end) {
                return Err(WRONG_LENGTH);
            }
        }
        Ok(used)
    }

    /// The average number of symbols in an entry of the table of pairs, if symbols have the
    /// frequencies that their code lengths imply.
    fn symbols_per_lookup(&self) -> f32 {
        // The number of codes by length.
        let mut shares = [0f32; STREAMS_BITS as usize + 1];
        for &length in self.lengths.iter().filter(|&&length| length > 0) {
            shares[usize::from(length)] += 1.0 / (1u32 << length) as f32;
        }
        let mut both = 0.0;
        for (first, share) in shares.iter().enumerate() {
            both += share * shares[..shares.len() - first].iter().sum::<f32>();
        }
        1.0 + both
    }

    /// Fills the table of pairs, which has room, from the table of single symbols.
    fn fill_pairs(&mut self) {
        self.pairs.clear();
        let table = &self.table;
        self.pairs.extend(table.iter().enumerate().map(|(bits, &first)| {
            let (symbol, length) = (first >> 16, first & 0xff);
            let second = table[bits >> length];
            let both = length + (second & 0xff);
            if both <= STREAMS_BITS {
                pair(symbol | second & 0xffff_0000, 2, both)
            } else {
                pair(symbol, 1, length)
            }
        }));
    }
}

/// An entry of the table of pairs.
fn pair(symbols: u32, number: u32, length: u32) -> u64 {
    u64::from(symbols) << 32 | u64::from(number << 8 | length)
}

/// Decodes the same number of symbols of each stream while all have whole words left, and returns
/// this number.
#[allow(clippy::needless_range_loop, reason = "the streams take turns at each place")]
fn decode_singles(
    table: &[u32; 1 << TABLE_BITS],
    bytes: &[u8],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u16]; STREAMS],
) -> usize {
    let parts = parts.each_mut().map(|part| part.as_chunks_mut::<GROUP>().0);
    let groups = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    for at in 0..groups {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return at * GROUP };
        // The mark shows afterwards by how many bits they were shifted.
        let mut bits = [a, b, c, d].map(|bits| bits | 1 << 63);
        for place in 0..GROUP {
            for i in 0..STREAMS {
                let entry = table[bits[i] as usize % table.len()];
                parts[i][at][place] = (entry >> 16) as u16;
                // Shifts by the lowest six bits of the entry: its length.
                bits[i] = bits[i].wrapping_shr(entry);
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(bits[i].leading_zeros());
        }
    }
    groups * GROUP
}

/// Decodes symbols of each stream while all have whole words left, and returns their numbers.
fn decode_pairs(
    table: &[u64; 1 << TABLE_BITS],
    bytes: &[u8],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u16]; STREAMS],
) -> [usize; STREAMS] {
    let mut done = [0; STREAMS];
    loop {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return done };
        if (0..STREAMS).any(|i| done[i] + 2 * GROUP > parts[i].len()) {
            return done;
        }
        let mut bits = [a, b, c, d].map(|bits| bits | 1 << 63);
        for _ in 0..GROUP {
            for i in 0..STREAMS {
                let entry = table[bits[i] as usize % table.len()];
                // The second symbol is overwritten if the entry has only one.
                let Some(place) = parts[i].get_mut(done[i]..done[i] + 2) else { return done };
                (place[0], place[1]) = ((entry >> 32) as u16, (entry >> 48) as u16);
                done[i] += (entry >> 8 & 0xff) as usize;
                bits[i] = bits[i].wrapping_shr(entry as u32);
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(bits[i].leading_zeros());
        }
    }
}

#[cfg(test)]
mod tests;
