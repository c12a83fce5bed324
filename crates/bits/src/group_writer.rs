//! Writes codes that were joined into groups.

use alloc::vec::Vec;

use crate::kernels;

/// The most bits of a group of codes. With the seven bits before them they leave the lowest byte of
/// a word free for the lengths of codes.
pub(crate) const GROUP_BITS: u32 = 49;
/// More bytes than are put at once.
pub(crate) const ROOM: usize = 1024;
/// The most symbols whose codes, of at most 18 bits, are put at once.
pub(crate) const CHUNK: usize = 256;

/// Appends groups of bits to bytes, from the lowest bit up, without a branch for each group.
pub(crate) struct GroupWriter<'a> {
    out: &'a mut Vec<u8>,
    buffer: Buffer,
    bits: Bits,
}

/// The bytes of the groups that are put at once, and the bytes past them in the last word.
pub(crate) type Buffer = [u8; ROOM + 8];

/// Bits that do not fill a byte yet.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    /// The bits, in the uppermost places; the bits below may have any value.
    upper: u64,
    /// Their number, at most seven.
    filled: u32,
}

impl Bits {
    /// Writes these bits and the bits of the [groups](GroupWriter::put) to the start of a buffer,
    /// as far as they fill bytes; returns the number of bytes.
    #[inline(always)]
    pub(crate) fn pack(
        &mut self,
        groups: impl Iterator<Item = (u64, u64)>,
        buffer: &mut Buffer,
    ) -> usize {
        let (mut upper, mut filled, mut end) = (self.upper, self.filled, 0);
        for (bits, width) in groups {
            upper = upper.wrapping_shr(width as u32) | bits;
            filled += width as u32 & 0xff;
            debug_assert!(end < ROOM, "more is put than there is room for");
            // The remainder tells the compiler that there is room. Without any bits, the written
            // ones are not kept.
            let (at, word) = (end % ROOM, upper.wrapping_shr(64 - filled));
            buffer[at..at + 8].copy_from_slice(&word.to_le_bytes());
            end = at + (filled / 8) as usize;
            filled %= 8;
        }
        *self = Self { upper, filled };
        end
    }
}

impl<'a> GroupWriter<'a> {
    /// Starts after the bytes in `out`.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, buffer: [0; ROOM + 8], bits: Bits::default() }
    }

    /// Appends groups of fewer than [`ROOM`] bytes in all, with the bits left before; more would
    /// overwrite each other. A group is two numbers: the first has its bits in the uppermost
    /// places, the first bit lowest; the second has their count, at most [`GROUP_BITS`], in the
    /// lowest byte. The lowest byte of the first number and the upper bytes of the second may have
    /// any value.
    #[inline(always)]
    pub(crate) fn put(&mut self, groups: impl Iterator<Item = (u64, u64)>) {
        let end = self.bits.pack(groups, &mut self.buffer);
        self.out.extend_from_slice(&self.buffer[..end]);
    }

    /// As [`put`](Self::put), of words that combine both numbers.
    pub(crate) fn put_words(&mut self, words: &[u64]) {
        let end = kernels::pack_words(words, &mut self.bits, &mut self.buffer);
        self.out.extend_from_slice(&self.buffer[..end]);
    }

    /// Appends the remaining bits; the last byte is padded with zeros.
    pub(crate) fn finish(self) {
        let Bits { upper, filled } = self.bits;
        if filled > 0 {
            self.out.push(upper.wrapping_shr(64 - filled) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn groups_follow_each_other() {
        let mut out = vec![0xee];
        let mut writer = GroupWriter::new(&mut out);
        let word = |bits: u64, width: u32| bits << (64 - width) | u64::from(width);
        writer.put_words(&[word(0b101, 3)]);
        // Nothing, and 49 ones, in two numbers that have other bits as well.
        let ones = (!0 << 15 | 0xab, 0xab00 | 49);
        writer.put([(0x99, 0xff00), ones].into_iter());
        writer.put_words(&[word(0b0110, 4), word(0b1, 1)]);
        writer.finish();
        let mut expected = vec![0xee];
        expected.extend([0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0b0110_1111, 0b1]);
        assert_eq!(out, expected);
    }

    #[test]
    fn as_many_words_as_rice_code_puts() {
        // 128 words of 49 bits, every third one set, after three bits.
        let bits = |at: usize| at.is_multiple_of(3);
        let word = |at: usize| {
            let ones = (0..49).map(|bit| u64::from(bits(49 * at + bit)) << bit);
            ones.sum::<u64>() << 15 | 49
        };
        let words: Vec<u64> = (0..128).map(word).collect();
        let mut out = vec![];
        let mut writer = GroupWriter::new(&mut out);
        writer.put_words(&[3]);
        writer.put_words(&words);
        writer.finish();
        assert_eq!(out.len(), (3usize + 128 * 49).div_ceil(8));
        for at in 0..128 * 49 {
            assert_eq!(out[(at + 3) / 8] >> ((at + 3) % 8) & 1 == 1, bits(at), "bit {at}");
        }
    }

    #[test]
    fn whole_bytes_leave_nothing() {
        let mut out = vec![];
        let mut writer = GroupWriter::new(&mut out);
        writer.put_words(&[0xcd << 56 | 8]);
        writer.finish();
        assert_eq!(out, [0xcd]);
    }
}
