//! Encoding with the table of codes.

use alloc::vec::Vec;

use super::Code;
use super::symbol::Symbol;
use crate::group_writer::{CHUNK, GROUP_BITS, GroupWriter};
use crate::kernels::join_words;

/// The most symbols whose short codes are put at once.
const SHORT_CHUNK: usize = 512;

impl Code {
    /// Appends the symbols' codes; the last byte is padded with zeros. Symbols without a code, or
    /// outside the alphabet, are not allowed: this panics, or writes nothing or the code of another
    /// symbol.
    pub fn encode<S: Symbol>(&self, symbols: &[S], out: &mut Vec<u8>) {
        if self.single.is_some() || self.longest == 0 {
            return;
        }
        let writer = GroupWriter::new(out);
        match GROUP_BITS / self.longest {
            _ if self.is_short() => self.encode_short(symbols, writer),
            4.. => self.encode_groups::<S, 4>(symbols, writer),
            3 => self.encode_groups::<S, 3>(symbols, writer),
            _ => self.encode_groups::<S, 2>(symbols, writer),
        }
    }

    /// Encodes with kernels that join codes, eight if their bits fit in a group, otherwise four.
    fn encode_short<S: Symbol>(&self, symbols: &[S], mut writer: GroupWriter<'_>) {
        let (mut words, mut joined) = ([0; SHORT_CHUNK / 4], [0; SHORT_CHUNK / 8]);
        let (fours, rest) = symbols.as_chunks();
        for fours in fours.chunks(words.len()) {
            (S::JOIN)(fours, &self.short, &mut words);
            let (pairs, last) = words[..fours.len()].as_chunks();
            if join_words(pairs, &mut joined) <= u64::from(GROUP_BITS) {
                writer.put_words(&joined[..pairs.len()]);
                writer.put_words(last);
            } else {
                writer.put_words(&words[..fours.len()]);
            }
        }
        self.encode_groups::<S, 1>(rest, writer);
    }

    /// Encodes `GROUP` symbols together; their codes have at most [`GROUP_BITS`].
    fn encode_groups<S: Symbol, const GROUP: usize>(
        &self,
        symbols: &[S],
        mut writer: GroupWriter<'_>,
    ) {
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
    fn joined<S: Symbol, const GROUP: usize>(&self, symbols: &[S; GROUP]) -> (u64, u64) {
        symbols.iter().fold((0, 0), |(codes, width): (u64, u64), &symbol| {
            let entry = self.entries[symbol.into()];
            // Shifts by the lowest six bits of the entry: its length. The length itself is below
            // the used bits.
            (codes.wrapping_shr(entry as u32) | entry, width.wrapping_add(entry))
        })
    }
}
