//! Encodes four streams at a time from the last symbol to the first, and decodes them from the
//! first to the last.

use alloc::vec::Vec;

use super::Code;
use super::shares::{STATE_BITS, STATES};
use crate::group_writer::{CHUNK, GroupWriter};
use crate::kernels::{Entries, decode_states, encode_states, join_entries};
use crate::quarters::{LENGTHS, STREAMS, put_lengths, quarters_mut, starts};
use crate::{BitReader, DecodeError};

const NOT_WHOLE: DecodeError =
    DecodeError::Corrupt("a tANS stream does not end after its last symbol");

impl Code {
    /// Appends the symbols in four streams. Symbols without states, or outside the alphabet, are
    /// not allowed: this panics, or writes bytes that cannot be decoded.
    ///
    /// # Panics
    /// If a stream is longer than `u32::MAX` bytes.
    pub fn encode(&mut self, symbols: &[u16], out: &mut Vec<u8>) {
        if symbols.is_empty() {
            return;
        }
        self.fill_encoding();
        self.entries.clear();
        self.entries.extend_from_slice(symbols);
        let states = self.states.as_slice().try_into().expect("it was filled");
        let mut quarters = quarters_mut(&mut self.entries);
        let mut first = [STATES as u32; STREAMS];
        encode_states(&self.transitions, states, &mut first, &mut quarters);
        let start = out.len();
        out.extend_from_slice(&[0; LENGTHS]);
        let mut lengths = [0; STREAMS];
        for (i, entries) in quarters.into_iter().enumerate() {
            let before = out.len();
            put_stream(first[i], entries, out);
            lengths[i] = out.len() - before;
        }
        let [a, b, c, _] = lengths;
        put_lengths([a, b, c], &mut out[start..]);
    }

    /// Fills `out` with symbols decoded from streams at the start of `bytes`, and returns the
    /// number of bytes read. The code must come from [`read`](Self::read).
    ///
    /// # Errors
    /// `Truncated`, or `Corrupt` if a stream does not end with its last symbol. The content of
    /// `out` is then unspecified.
    ///
    /// # Panics
    /// If the code was fitted instead of read.
    pub fn decode(&self, bytes: &[u8], out: &mut [u16]) -> Result<usize, DecodeError> {
        let table: &Entries =
            self.decoding.as_slice().try_into().expect("decoding needs a code from `read`");
        if out.is_empty() {
            return Ok(0);
        }
        let starts = starts(bytes)?;
        let mut parts = quarters_mut(out);
        let mut states = [0; STREAMS];
        let mut positions = starts.map(|start| 8 * start as u64);
        for i in 0..STREAMS {
            if !parts[i].is_empty() {
                (states[i], positions[i]) = first_state(bytes, starts[i])?;
            }
        }
        let done = decode_states(table, bytes, &mut states, &mut positions, &mut parts);
        let mut used = LENGTHS;
        for (i, part) in parts.into_iter().enumerate() {
            let end = starts.get(i + 1).copied();
            let stream = &bytes[..end.unwrap_or(bytes.len())];
            let mut reader = BitReader::at(stream, positions[i]);
            for symbol in &mut part[done..] {
                let entry = table[states[i] as usize % STATES];
                (states[i], *symbol) = (entry.next(reader.peek()), entry.symbol());
                reader.skip(entry.bits());
            }
            let whole = reader.is_at_byte();
            used = reader.finish()?;
            if !whole || states[i] != 0 || end.is_some_and(|end| used != end) {
                return Err(NOT_WHOLE);
            }
        }
        Ok(used)
    }
}

/// Appends a stream: zeros, a one, the first state, and the bits of its symbols.
fn put_stream(state: u32, entries: &[u16], out: &mut Vec<u8>) {
    if entries.is_empty() {
        return;
    }
    let bits: u64 = entries
        .chunks(CHUNK)
        .map(|chunk| u64::from(chunk.iter().map(|entry| entry & 0xf).sum::<u16>()))
        .sum();
    let start = u64::from(STATE_BITS) + 1;
    let zeros = (start + bits).next_multiple_of(8) - (start + bits);
    let start = start + zeros;
    let state = u64::from(state) - STATES as u64;
    let mut writer = GroupWriter::new(out);
    writer.put_words(&[(state << 1 | 1) << zeros << (64 - start) | start]);
    let mut words = [0; CHUNK / 4];
    let (fours, rest) = entries.as_chunks();
    for fours in fours.chunks(words.len()) {
        join_entries(fours, &mut words);
        writer.put_words(&words[..fours.len()]);
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    join_entries(&[last], &mut words);
    writer.put_words(&words[..1]);
    writer.finish();
}

/// The state at the start of a stream, and the position after it.
fn first_state(bytes: &[u8], start: usize) -> Result<(u32, u64), DecodeError> {
    let zeros = bytes.get(start).ok_or(DecodeError::Truncated)?.trailing_zeros();
    if zeros == 8 {
        return Err(DecodeError::Corrupt("a tANS stream starts with eight zeros"));
    }
    let mut reader = BitReader::at(bytes, 8 * start as u64 + u64::from(zeros) + 1);
    let state = reader.peek() as u32 % STATES as u32;
    reader.skip(STATE_BITS);
    reader.check()?;
    Ok((state, 8 * start as u64 + u64::from(zeros + 1 + STATE_BITS)))
}
