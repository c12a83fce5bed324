//! Encoding with the table of codes.

use alloc::vec::Vec;

use super::Code;
use crate::group_writer::{CHUNK, GROUP_BITS, GroupWriter};
use crate::kernels::join_codes;

impl Code {
    /// Appends the symbols' codes; the last byte is padded with zeros. Symbols without a code, or
    /// outside the alphabet, are not allowed: this panics, or writes nothing or the code of another
    /// symbol.
    pub fn encode(&self, symbols: &[u16], out: &mut Vec<u8>) {
        if self.single.is_some() || self.longest == 0 {
            return;
        }
        let writer = GroupWriter::new(out);
        match GROUP_BITS / self.longest {
            _ if self.is_short() => self.encode_short(symbols, writer),
            4.. => self.encode_groups::<4>(symbols, writer),
            3 => self.encode_groups::<3>(symbols, writer),
            _ => self.encode_groups::<2>(symbols, writer),
        }
    }

    /// Encodes with a kernel that joins codes.
    fn encode_short(&self, symbols: &[u16], mut writer: GroupWriter<'_>) {
        let mut words = [0; CHUNK / 4];
        let (fours, rest) = symbols.as_chunks();
        for fours in fours.chunks(words.len()) {
            join_codes(fours, &self.short, &mut words);
            writer.put_words(&words[..fours.len()]);
        }
        self.encode_groups::<1>(rest, writer);
    }

    /// Encodes `GROUP` symbols together; their codes have at most [`GROUP_BITS`].
    fn encode_groups<const GROUP: usize>(&self, symbols: &[u16], mut writer: GroupWriter<'_>) {
        let (groups, rest) = symbols.as_chunks::<GROUP>();
        for groups in groups.chunks(CHUNK / GROUP) {
            writer.put(groups.iter().map(|group| self.joined(group)));
        }
        writer.put(rest.iter().map(|&symbol| self.joined(&[symbol])));
        writer.finish();
    }

    /// The codes of symbols, in the uppermost bits, and their total length in the lowest byte of
    /// the second number; other bits have any value.
    #[inline(always)]
    fn joined<const GROUP: usize>(&self, symbols: &[u16; GROUP]) -> (u64, u64) {
        symbols.iter().fold((0, 0), |(codes, width): (u64, u64), &symbol| {
            let entry = self.entries[usize::from(symbol)];
            // Shifts by the lowest six bits of the entry: its length. The length itself is below
            // the used bits.
            (codes.wrapping_shr(entry as u32) | entry, width.wrapping_add(entry))
        })
    }
}
