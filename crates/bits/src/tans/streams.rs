//! Encoding from the last symbol to the first, and decoding from the first to the last, of four streams at a time.

use alloc::vec::Vec;

use super::{Code, STATE_BITS, STATES, Transition};
use crate::bit_io::window;
use crate::quarters::{LENGTHS, STREAMS, put_lengths, quarters, quarters_mut, starts};
use crate::{BitReader, DecodeError, try_resize};

/// The symbols whose bits fit in a word, with seven before them.
const GROUP: usize = 4;
/// The most bytes of a stream besides its symbols: a start of up to 20 bits, and a word that is written before it.
const ROOM: usize = 16;

type Decoding = [u32; STATES];

const NOT_WHOLE: DecodeError = DecodeError::Corrupt("a tANS stream does not end with its symbols");

impl Code {
    /// Appends the symbols in four streams. A symbol without states, or outside
    /// the alphabet, is a mistake: this panics, or writes what cannot be decoded.
    ///
    /// # Panics
    /// If a stream is longer than `u32::MAX` bytes.
    pub fn encode(&mut self, symbols: &[u16], out: &mut Vec<u8>) {
        if symbols.is_empty() {
            return;
        }
        let most = most_len(symbols.len());
        self.streams.resize(self.streams.len().max(STREAMS * most), 0);
        self.fill_encoding();
        let states = self.states.as_slice().try_into().expect("it was filled");
        let quarters = quarters(symbols);
        let mut writers = Writer::four(&mut self.streams, most);
        let together = quarters[STREAMS - 1].len();
        for (writer, quarter) in writers.iter_mut().zip(quarters) {
            for symbol in quarter[together..].iter().rev() {
                writer.put(self.transitions[usize::from(*symbol)], states);
                writer.flush();
            }
        }
        let mut groups = quarters.map(|quarter| quarter[..together].rchunks_exact(GROUP));
        for _ in 0..together / GROUP {
            let group: [&[u16; GROUP]; STREAMS] = groups.each_mut().map(|groups| {
                groups.next().and_then(|group| group.try_into().ok()).expect("they are as many")
            });
            for place in (0..GROUP).rev() {
                for i in 0..STREAMS {
                    writers[i].put(self.transitions[usize::from(group[i][place])], states);
                }
            }
            writers.iter_mut().for_each(Writer::flush);
        }
        for (writer, groups) in writers.iter_mut().zip(groups) {
            for symbol in groups.remainder().iter().rev() {
                writer.put(self.transitions[usize::from(*symbol)], states);
                writer.flush();
            }
        }
        let start = out.len();
        out.extend_from_slice(&[0; LENGTHS]);
        let mut lengths = [0; STREAMS];
        for (i, (writer, quarter)) in writers.into_iter().zip(quarters).enumerate() {
            let stream = if quarter.is_empty() { &[] } else { writer.finish() };
            lengths[i] = stream.len();
            out.extend_from_slice(stream);
        }
        let [a, b, c, _] = lengths;
        put_lengths([a, b, c], &mut out[start..]);
    }

    /// Appends `count` symbols decoded from streams at the start of `bytes`, and returns the number of bytes read. The code
    /// must come from [`read`](Self::read). Symbols may take no bits, so that the caller must bound their number.
    ///
    /// # Errors
    /// `Truncated`, `OutOfMemory`, or `Corrupt` if a stream does not end with its last symbol. What was appended is then
    /// unspecified.
    ///
    /// # Panics
    /// If the code was fitted instead of read.
    pub fn decode(
        &self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<u16>,
    ) -> Result<usize, DecodeError> {
        let table: &Decoding =
            self.decoding.as_slice().try_into().expect("decoding needs a code from `read`");
        if count == 0 {
            return Ok(0);
        }
        let starts = starts(bytes)?;
        let start = out.len();
        try_resize(out, start.saturating_add(count), 0)?;
        let mut parts = quarters_mut(&mut out[start..]);
        let mut states = [0; STREAMS];
        let mut positions = starts.map(|start| 8 * start as u64);
        for i in 0..STREAMS {
            if !parts[i].is_empty() {
                (states[i], positions[i]) = first_state(bytes, starts[i])?;
            }
        }
        let done = decode_groups(table, bytes, &mut states, &mut positions, &mut parts);
        let mut used = LENGTHS;
        for (i, part) in parts.into_iter().enumerate() {
            let end = starts.get(i + 1).copied();
            let stream = &bytes[..end.unwrap_or(bytes.len())];
            let mut reader = BitReader::at(stream, positions[i]);
            for symbol in &mut part[done..] {
                let entry = table[states[i] as usize % STATES];
                let bits = reader.peek();
                (states[i], *symbol) = (next(entry, bits), (entry >> 16) as u16);
                reader.skip(entry & 15);
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

/// The most bytes of a stream, for a quarter of this number of symbols.
pub(super) fn most_len(symbols: usize) -> usize {
    symbols.div_ceil(STREAMS) * STATE_BITS as usize / 8 + ROOM
}

/// A stream that grows towards its start.
struct Writer<'a> {
    buffer: &'a mut [u8],
    /// Where the bytes that are written start.
    start: usize,
    /// The bits that are not written yet, in the lowest places; above them other bits of any value.
    bits: u64,
    filled: u32,
    /// The state, with 2^12 added.
    state: u32,
}

impl<'a> Writer<'a> {
    /// Writers that have `most` bytes each.
    fn four(streams: &'a mut [u8], most: usize) -> [Self; STREAMS] {
        let mut rest = streams;
        core::array::from_fn(|_| {
            let (buffer, after) = core::mem::take(&mut rest).split_at_mut(most);
            rest = after;
            Self { buffer, start: most, bits: 0, filled: 0, state: STATES as u32 }
        })
    }

    /// Goes to the state that leads to the current one by a symbol.
    #[inline(always)]
    fn put(&mut self, transition: Transition, states: &[u16; STATES]) {
        let count = self.state.wrapping_add(transition.add) >> 16;
        let low = self.state & !(u32::MAX << (count & 31));
        self.bits = self.bits << (count & 31) | u64::from(low);
        self.filled += count;
        let place = (self.state >> (count & 31)).wrapping_add(transition.find);
        self.state = u32::from(states[place as usize % STATES]);
    }

    /// Writes the whole bytes.
    #[inline(always)]
    fn flush(&mut self) {
        // Without any bits, those that are written are not kept.
        let word = self.bits.wrapping_shl(64 - self.filled);
        self.buffer[self.start - 8..self.start].copy_from_slice(&word.to_le_bytes());
        self.start -= (self.filled / 8) as usize;
        self.filled %= 8;
    }

    /// Writes the state, a one, and zeros up to a whole byte. Returns the stream.
    fn finish(mut self) -> &'a [u8] {
        self.bits = self.bits << STATE_BITS | u64::from(self.state - STATES as u32);
        self.bits = self.bits << 1 | 1;
        self.filled += STATE_BITS + 1;
        let zeros = self.filled.next_multiple_of(8) - self.filled;
        self.bits <<= zeros;
        self.filled += zeros;
        self.flush();
        &self.buffer[self.start..]
    }
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

/// The state after the one with this entry.
#[inline(always)]
fn next(entry: u32, bits: u64) -> u32 {
    (entry >> 4 & (STATES as u32 - 1)) + (bits as u32 & !(u32::MAX << (entry & 15)))
}

/// Decodes the same number of symbols of each stream while all have whole words left, and returns this number.
#[allow(clippy::needless_range_loop, reason = "the streams take turns at each place")]
fn decode_groups(
    table: &Decoding,
    bytes: &[u8],
    states: &mut [u32; STREAMS],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u16]; STREAMS],
) -> usize {
    let parts = parts.each_mut().map(|part| part.as_chunks_mut::<GROUP>().0);
    let groups = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    for at in 0..groups {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return at * GROUP };
        let mut bits = [a, b, c, d];
        let (mut symbols, mut widths) = ([[0; GROUP]; STREAMS], [0; STREAMS]);
        for place in 0..GROUP {
            for i in 0..STREAMS {
                let entry = table[states[i] as usize % STATES];
                symbols[i][place] = (entry >> 16) as u16;
                states[i] = next(entry, bits[i]);
                bits[i] >>= entry & 15;
                widths[i] += entry & 15;
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(widths[i]);
            parts[i][at] = symbols[i];
        }
    }
    groups * GROUP
}
