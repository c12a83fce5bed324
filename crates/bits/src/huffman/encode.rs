//! Encoding with the table of codes.

use alloc::vec::Vec;

use super::Code;
use crate::kernels::join_codes;

/// The number of symbols that are encoded before the output grows again.
const CHUNK: usize = 1024;
/// The bytes of a chunk's codes: at most 18 bits for each, and the seven bits before them.
const ROOM: usize = 4096;
/// The most bits of a group of codes. With the seven bits before them they leave the lowest byte of a word free, where
/// the lengths of codes are.
const GROUP_BITS: u32 = 49;

impl Code {
    /// Appends the symbols' codes; the last byte is padded with zeros. A symbol that has no code, or is not in the
    /// alphabet, is a mistake: this panics, or writes nothing or the code of another symbol.
    pub fn encode(&self, symbols: &[u16], out: &mut Vec<u8>) {
        if self.single.is_some() || self.longest == 0 {
            return;
        }
        let mut word = Word::default();
        match GROUP_BITS / self.longest {
            _ if self.is_short() => self.encode_short(symbols, &mut word, out),
            4.. => self.encode_groups::<4>(symbols, &mut word, out),
            3 => self.encode_groups::<3>(symbols, &mut word, out),
            _ => self.encode_groups::<2>(symbols, &mut word, out),
        }
        word.finish(out);
    }

    /// Encodes with codes that a kernel joins.
    fn encode_short(&self, symbols: &[u16], word: &mut Word, out: &mut Vec<u8>) {
        let (mut words, mut buffer) = ([0; CHUNK / 4], [0; ROOM + 8]);
        let (fours, rest) = symbols.as_chunks();
        for fours in fours.chunks(CHUNK / 4) {
            join_codes(fours, &self.short, &mut words);
            let end = word.put(words[..fours.len()].iter().map(|&word| (word, word)), &mut buffer);
            out.extend_from_slice(&buffer[..end]);
        }
        self.encode_groups::<1>(rest, word, out);
    }

    /// Encodes `GROUP` symbols together, whose codes have at most [`GROUP_BITS`].
    fn encode_groups<const GROUP: usize>(
        &self,
        symbols: &[u16],
        word: &mut Word,
        out: &mut Vec<u8>,
    ) {
        let mut buffer = [0; ROOM + 8];
        let (groups, rest) = symbols.as_chunks::<GROUP>();
        for groups in groups.chunks(CHUNK / GROUP) {
            let end = word.put(groups.iter().map(|group| self.joined(group)), &mut buffer);
            out.extend_from_slice(&buffer[..end]);
        }
        let end = word.put(rest.iter().map(|&symbol| self.joined(&[symbol])), &mut buffer);
        out.extend_from_slice(&buffer[..end]);
    }

    /// The codes of symbols, in the uppermost bits, above others of any value in the lowest byte, and their total length in
    /// the lowest byte of the second number.
    #[inline(always)]
    fn joined<const GROUP: usize>(&self, symbols: &[u16; GROUP]) -> (u64, u64) {
        symbols.iter().fold((0, 0), |(codes, width): (u64, u64), &symbol| {
            let entry = self.entries[usize::from(symbol)];
            // Shifts by the lowest six bits of the entry: its length. The length itself is below what is used.
            (codes.wrapping_shr(entry as u32) | entry, width.wrapping_add(entry))
        })
    }
}

/// Bits that do not fill a byte yet, at most seven between two groups.
#[derive(Debug, Default, Clone, Copy)]
struct Word {
    /// The bits, in the uppermost places; below them other bits of any value.
    upper: u64,
    filled: u32,
}

impl Word {
    /// Writes groups of codes, each in the uppermost bits of the first number, and their total length in the lowest byte of the
    /// second: at most [`GROUP_BITS`] bits. Returns the end of the whole bytes, which are kept.
    #[inline(always)]
    fn put(
        &mut self,
        groups: impl Iterator<Item = (u64, u64)>,
        buffer: &mut [u8; ROOM + 8],
    ) -> usize {
        let (Self { mut upper, mut filled }, mut end) = (*self, 0);
        for (codes, width) in groups {
            upper = upper.wrapping_shr(width as u32) | codes;
            filled += width as u32 & 0xff;
            // The remainder tells the compiler that there is room. Without any bits, those that are written are not kept.
            let (at, bits) = (end % ROOM, upper.wrapping_shr(64 - filled));
            buffer[at..at + 8].copy_from_slice(&bits.to_le_bytes());
            end = at + (filled / 8) as usize;
            filled %= 8;
        }
        *self = Self { upper, filled };
        end
    }

    /// Appends the bits that are left.
    fn finish(self, out: &mut Vec<u8>) {
        if self.filled > 0 {
            out.push(self.upper.wrapping_shr(64 - self.filled) as u8);
        }
    }
}
