//! Symbols in four streams.
//!
//! The first ⌈n/4⌉ of n symbols are the first stream, the next ⌈n/4⌉ the second, and so on. The
//! lengths of the first three streams in bytes come first, a little-endian `u32` each, then the
//! streams, each as [`Code::encode`] writes it. A decoder follows four chains of table lookups at
//! the same time; within a chain, each lookup waits for the one before.

use alloc::vec::Vec;

use super::symbol::Symbol;
use super::{Code, TABLE_BITS};
use crate::quarters::{LENGTHS, STREAMS, put_lengths, quarters, quarters_mut, starts};
use crate::reserve::try_room;
use crate::{BitReader, DecodeError};

/// The longest code that streams may have.
pub const STREAMS_BITS: u32 = TABLE_BITS;
/// The most bytes beyond a single stream: the lengths, and the padding of three streams.
pub const STREAMS_EXTRA: usize = LENGTHS + STREAMS - 1;

const WRONG_LENGTH: DecodeError = DecodeError::Corrupt("a Huffman stream is longer than its codes");

impl Code {
    /// Appends the symbols' codes in four streams.
    ///
    /// # Panics
    /// As [`encode`](Self::encode), and if a code is longer than [`STREAMS_BITS`] or a stream than
    /// `u32::MAX` bytes.
    pub fn encode_streams<S: Symbol>(&self, symbols: &[S], out: &mut Vec<u8>) {
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
    pub fn decode_streams<S: Symbol>(
        &mut self,
        bytes: &[u8],
        out: &mut [S],
    ) -> Result<usize, DecodeError> {
        if self.longest > STREAMS_BITS {
            return Err(DecodeError::Corrupt("a Huffman code is too long for streams"));
        }
        if !self.has_stream(bytes, out)? {
            return Ok(0);
        }
        let starts = starts(bytes)?;
        try_room(&mut self.several, self.table.len())?;
        let several = out.len() >= S::LONG && self.symbols_per_lookup() >= S::WORTHWHILE;
        if several {
            let table = self.table.as_slice().try_into().expect("no code is longer than its index");
            (S::FILL_SEVERAL)(table, &mut self.several);
        }
        let table = self.fixed_table().expect("no code is longer than the index of a fixed table");
        let mut parts = quarters_mut(out);
        let mut positions = starts.map(|start| 8 * start as u64);
        let done = if several {
            let several = self.several.as_slice().try_into().expect("it was filled");
            (S::DECODE_SEVERAL)(several, bytes, &mut positions, &mut parts)
        } else {
            (S::DECODE_SINGLES)(table, bytes, &mut positions, &mut parts)
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
}

#[cfg(test)]
mod tests;
