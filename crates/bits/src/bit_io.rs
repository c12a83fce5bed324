//! Reading and writing of bits, least significant first.

use alloc::vec::Vec;

use crate::DecodeError;

/// Appends bits to bytes through a 64-bit buffer. The last byte is padded with zeros.
#[derive(Debug)]
pub struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    buffer: u64,
    /// Bits in the buffer, below 64.
    filled: u32,
}

impl<'a> BitWriter<'a> {
    /// Starts at a byte boundary, after the bytes in `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, buffer: 0, filled: 0 }
    }

    /// Appends the lowest `width` bits of `value`; the others must be 0. `width` is at most 63.
    #[inline]
    pub fn put(&mut self, value: u64, width: u32) {
        debug_assert!(width < 64 && value >> width == 0);
        self.buffer |= value << self.filled;
        self.filled += width;
        if self.filled >= 64 {
            self.out.extend_from_slice(&self.buffer.to_le_bytes());
            self.filled -= 64;
            // Keeps the upper bits of the value, which did not fit. The width and thus the shift
            // are below 64.
            self.buffer = value >> (width - self.filled);
        }
    }

    /// Writes the bits still in the buffer.
    pub fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.buffer.to_le_bytes()[..bytes]);
    }
}

/// Reads bits from bytes. Past the end it reads zeros; [`check`](Self::check) reports that.
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    position: u64,
}

impl<'a> BitReader<'a> {
    /// The least number of bits that [`peek`](Self::peek) returns.
    pub const WINDOW: u32 = 57;

    /// Starts at the first bit.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::at(bytes, 0)
    }

    /// Starts after `position` bits.
    pub(crate) fn at(bytes: &'a [u8], position: u64) -> Self {
        Self { bytes, position }
    }

    /// The next [`WINDOW`](Self::WINDOW) or more bits, from the lowest up.
    #[inline]
    pub fn peek(&self) -> u64 {
        let at = (self.position / 8) as usize;
        let word = match self.bytes.get(at..at + 8) {
            Some(bytes) => {
                u64::from_le_bytes(bytes.try_into().expect("eight bytes were asked for"))
            }
            None => self.peek_end(at),
        };
        word >> (self.position % 8)
    }

    #[cold]
    fn peek_end(&self, at: usize) -> u64 {
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    /// Skips `width` bits.
    #[inline]
    pub fn skip(&mut self, width: u32) {
        self.position += u64::from(width);
    }

    /// Fails if more bits were read than the bytes have.
    #[inline]
    pub fn check(&self) -> Result<(), DecodeError> {
        if self.position > 8 * self.bytes.len() as u64 {
            Err(DecodeError::Truncated)
        } else {
            Ok(())
        }
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bits read so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Whether the next bit is the first of a byte.
    pub(crate) fn is_at_byte(&self) -> bool {
        self.position.is_multiple_of(8)
    }

    /// Ends the reading: checks that all bits existed and that the rest of the last byte is 0, and
    /// returns the number of bytes read, including the last one read in part.
    pub fn finish(self) -> Result<usize, DecodeError> {
        self.check()?;
        let bytes = self.position.div_ceil(8) as usize;
        let used = self.position % 8;
        if used != 0 && self.bytes[bytes - 1] >> used != 0 {
            return Err(DecodeError::Corrupt("padding bits are not zero"));
        }
        Ok(bytes)
    }
}

/// The bits from a position on, at least 57; `None` if fewer than eight bytes are left.
#[inline(always)]
pub(crate) fn window(bytes: &[u8], position: u64) -> Option<u64> {
    let at = (position / 8) as usize;
    let word = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(word.try_into().expect("eight bytes were asked for")) >> (position % 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_fill_bytes_from_the_lowest() {
        let mut out = alloc::vec![0xee];
        let mut writer = BitWriter::new(&mut out);
        writer.put(0b101, 3);
        writer.put(0, 0);
        writer.put(0b1_1111_0000, 9);
        writer.finish();
        assert_eq!(out, [0xee, 0b1000_0101, 0b0000_1111]);
    }

    #[test]
    fn the_buffer_may_fill_to_the_last_bit() {
        let mut out = Vec::new();
        let mut writer = BitWriter::new(&mut out);
        writer.put((1 << 63) - 1, 63);
        writer.put(1, 1);
        writer.put(0x2a, 6);
        writer.put(u64::MAX >> 1, 63);
        writer.finish();
        let mut expected = [0xff; 17];
        expected[8] = 0b1110_1010;
        expected[16] = 0b0001_1111;
        assert_eq!(out, expected);
    }

    #[test]
    fn reading_past_the_end_is_reported() {
        let mut reader = BitReader::new(&[0b0110_0001, 0x80]);
        assert_eq!(reader.peek(), 0x8061);
        reader.skip(5);
        assert_eq!(reader.peek(), 0x8061 >> 5);
        assert_eq!(reader.clone().finish(), Err(DecodeError::Corrupt("padding bits are not zero")));
        reader.skip(11);
        assert_eq!(reader.clone().finish(), Ok(2));
        reader.skip(1);
        assert_eq!(reader.finish(), Err(DecodeError::Truncated));
    }
}
