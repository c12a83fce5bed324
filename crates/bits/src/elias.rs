//! Elias' universal codes of positive integers: γ, δ and ω.
//!
//! With N = ⌊log2 x⌋, and binary numbers with their highest bit first:
//! - **γ** writes N zeros, then x in N + 1 bits: 2N + 1 bits.
//! - **δ** writes N + 1 in γ, then x without its highest bit: N + 2⌊log2(N + 1)⌋ + 1 bits.
//! - **ω** writes groups and a final zero. The last group is x; each earlier group is the number of
//!   bits of the next group minus one, down to 1, which is not written.
//!
//! The first bit of a code is the lowest free bit of a byte, as in all codes of this crate. The
//! bits of a number come highest first, as in Elias' paper; ω needs this to distinguish a group
//! from the final zero.
//!
//! Range: 1 to 2^64 − 1. Cost: the code of 1 has 1 bit. γ is the shortest up to 31 (ω is as short
//! for 2, 3 and 8 to 15), δ above; ω stays within three bits of δ.
//!
//! Source: Elias: "Universal codeword sets and representations of the integers", IEEE Trans. Inf.
//! Theory 21, 1975.
//!
//! ```
//! use gradwire_bits::elias::Elias;
//!
//! let mut code = Vec::new();
//! Elias::Delta.encode(&[17, 1, 2], &mut code);
//! // 001010001, 1, 0100, each from the lowest bit up.
//! assert_eq!(code, [0b0001_0100, 0b00_0101_1]);
//! assert_eq!(Elias::Delta.len_bits(&[17, 1, 2]), 14);
//!
//! let mut back = Vec::new();
//! let used = Elias::Delta.decode(&code, 3, &mut back)?;
//! assert_eq!((back, used), (vec![17, 1, 2], 2));
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

mod bits;
mod tables;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use self::bits::reversed;
use self::tables::{LOOKUPS, MOST, READ, SEVERAL, SHORT, SMALL, WIDTH, WRITE, WRITTEN};
use crate::{BitReader, BitWriter, DecodeError, try_resize};

pub use self::bits::Elias;

impl Elias {
    /// The length of a number's code, in bits.
    ///
    /// # Panics
    /// If the number is 0, which has no code.
    #[inline]
    pub fn len(self, value: u64) -> u32 {
        let below = value.ilog2();
        match self {
            Elias::Gamma => 2 * below + 1,
            Elias::Delta => below + 2 * (below + 1).ilog2() + 1,
            Elias::Omega => {
                let (mut width, mut group) = (1, below);
                while group > 0 {
                    width += group + 1;
                    group = group.ilog2();
                }
                width
            }
        }
    }

    /// Writes a number.
    ///
    /// # Panics
    /// If the number is 0, which has no code.
    #[inline]
    pub fn write(self, value: u64, writer: &mut BitWriter<'_>) {
        if value.wrapping_sub(1) < SMALL as u64 - 1 {
            let entry = WRITE[self as usize][value as usize];
            writer.put(u64::from(entry & ((1 << WIDTH) - 1)), entry >> WIDTH);
        } else {
            self.write_large(value, writer);
        }
    }

    #[cold]
    fn write_large(self, value: u64, writer: &mut BitWriter<'_>) {
        assert!(value > 0, "Elias codes encode numbers of 1 or more, not 0");
        let (mut bits, mut width) = self.bits(value);
        while width > 32 {
            writer.put(bits as u64 & 0xffff_ffff, 32);
            bits >>= 32;
            width -= 32;
        }
        writer.put(bits as u64, width);
    }

    /// Reads a number.
    ///
    /// # Errors
    /// `Truncated`, or `Corrupt` for a number of more than 64 bits.
    #[inline]
    pub fn read(self, reader: &mut BitReader<'_>) -> Result<u64, DecodeError> {
        let entry = READ[self as usize][reader.peek() as usize & ((1 << SHORT) - 1)];
        if entry != 0 {
            reader.skip(u32::from(entry >> SHORT));
            reader.check()?;
            return Ok(u64::from(entry & ((1 << SHORT) - 1)));
        }
        self.read_long(reader)
    }

    fn read_long(self, reader: &mut BitReader<'_>) -> Result<u64, DecodeError> {
        let value = match self {
            Elias::Gamma => {
                let below = zeros(reader)?;
                number(reader, below + 1)
            }
            Elias::Delta => {
                let length = Elias::Gamma.read(reader)?;
                if length > 64 {
                    return Err(TOO_LARGE);
                }
                let below = length as u32 - 1;
                1 << below | number(reader, below)
            }
            Elias::Omega => {
                let mut value = 1;
                while reader.peek() & 1 == 1 {
                    if value > 63 {
                        return Err(TOO_LARGE);
                    }
                    value = number(reader, value as u32 + 1);
                }
                reader.skip(1);
                value
            }
        };
        reader.check()?;
        Ok(value)
    }

    /// The length of the codes of several numbers, in bits before padding.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn len_bits(self, values: &[u32]) -> u64 {
        values.iter().map(|&value| u64::from(self.len(u64::from(value)))).sum()
    }

    /// Appends the codes of several numbers; the last byte is padded with zeros.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn encode(self, values: &[u32], out: &mut Vec<u8>) {
        let mut writer = BitWriter::new(out);
        values.iter().for_each(|&value| self.write(u64::from(value), &mut writer));
        writer.finish();
    }

    /// Appends `count` numbers decoded from the start of `bytes` to `out`, and returns the number
    /// of bytes read. Each number takes at least one bit, so the memory for an untrusted count is
    /// bounded by the length of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, `OutOfMemory`, or `Corrupt` for padding that is not zero and for numbers of
    /// more than 32 bits. The appended numbers are then unspecified.
    pub fn decode(
        self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<u32>,
    ) -> Result<usize, DecodeError> {
        if count > bytes.len().saturating_mul(8) {
            return Err(DecodeError::Truncated);
        }
        let start = out.len();
        try_resize(out, start.saturating_add(count), 0)?;
        let (mut rest, mut reader) = (&mut out[start..], BitReader::new(bytes));
        loop {
            let read = self.read_several(&mut reader, rest);
            rest = &mut rest[read..];
            let Some((next, after)) = rest.split_first_mut() else { break };
            *next = u32::try_from(self.read(&mut reader)?).map_err(|_| TOO_LARGE)?;
            rest = after;
        }
        reader.finish()
    }

    /// Reads numbers by the table of several, up to a code that is too long or close to the end.
    /// Returns their number; numbers behind them may have been overwritten.
    fn read_several(self, reader: &mut BitReader<'_>, out: &mut [u32]) -> usize {
        let (table, mut next) = (&SEVERAL[self as usize], 0);
        while next + LOOKUPS * MOST + WRITTEN <= out.len() {
            let (mut bits, mut width) = (reader.peek(), 0);
            for _ in 0..LOOKUPS {
                let entry = table[bits as usize % table.len()];
                if entry == 0 {
                    reader.skip(width);
                    return next;
                }
                let written = out[next..next + WRITTEN].iter_mut().zip(entry.to_le_bytes());
                written.for_each(|(number, byte)| *number = u32::from(byte));
                next += usize::from((entry >> (8 * MOST)) as u8);
                let used = (entry >> (8 * MOST + 8)) as u32;
                bits >>= used;
                width += used;
            }
            reader.skip(width);
            if reader.check().is_err() {
                break;
            }
        }
        next
    }
}

const TOO_LARGE: DecodeError = DecodeError::Corrupt("an Elias-coded number is too large");

/// Reads up to 63 zeros, but not the one that follows.
fn zeros(reader: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    let mut all = 0;
    loop {
        let zeros = reader.peek().trailing_zeros().min(BitReader::WINDOW);
        reader.skip(zeros);
        reader.check()?;
        all += zeros;
        if all > 63 {
            return Err(TOO_LARGE);
        }
        if zeros < BitReader::WINDOW {
            return Ok(all);
        }
    }
}

/// Reads a number of up to 64 bits, the highest bit first; bits past the end are zeros.
fn number(reader: &mut BitReader<'_>, width: u32) -> u64 {
    let mut part = |width: u32| {
        let bits = reversed(reader.peek(), width);
        reader.skip(width);
        bits
    };
    let (high, low) = (width / 2, width - width / 2);
    part(high) << low | part(low)
}
