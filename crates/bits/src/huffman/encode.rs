//! Encoding with the table of codes.

use alloc::vec::Vec;

use super::Code;

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
        let entry = |symbol| self.entries[usize::from(symbol)];
        match (GROUP_BITS / self.longest, self.entries.first_chunk::<256>()) {
            (4.., Some(entries)) if self.lengths.len() <= 256 => {
                encode_groups::<4>(symbols, out, |symbol| entries[usize::from(symbol as u8)]);
            }
            (4.., _) => encode_groups::<4>(symbols, out, entry),
            (3, _) => encode_groups::<3>(symbols, out, entry),
            _ => encode_groups::<2>(symbols, out, entry),
        }
    }
}

#[inline(always)]
fn encode_groups<const GROUP: usize>(
    symbols: &[u16],
    out: &mut Vec<u8>,
    entry: impl Fn(u16) -> u64,
) {
    let mut word = Word::default();
    let mut buffer = [0; ROOM + 8];
    for chunk in symbols.chunks(CHUNK) {
        let mut end = 0;
        let (groups, rest) = chunk.as_chunks::<GROUP>();
        for group in groups {
            end = word.put(group, &entry, &mut buffer, end);
        }
        for &symbol in rest {
            end = word.put(&[symbol], &entry, &mut buffer, end);
        }
        out.extend_from_slice(&buffer[..end]);
    }
    let used = word.filled.div_ceil(8) as usize;
    let bits = word.upper.checked_shr(64 - word.filled).unwrap_or(0);
    out.extend_from_slice(&bits.to_le_bytes()[..used]);
}

/// Bits that do not fill a byte yet, at most seven between two groups.
#[derive(Debug, Default, Clone, Copy)]
struct Word {
    /// The bits, in the uppermost places; below them other bits of any value.
    upper: u64,
    filled: u32,
}

impl Word {
    /// Adds the codes of symbols, at most [`GROUP_BITS`] bits, and writes a word at `at`, of which the whole bytes are
    /// kept. Returns their end, which must be below [`ROOM`] before.
    #[inline(always)]
    fn put<const GROUP: usize>(
        &mut self,
        symbols: &[u16; GROUP],
        entry: impl Fn(u16) -> u64,
        buffer: &mut [u8; ROOM + 8],
        at: usize,
    ) -> usize {
        let (first, second) = symbols.split_at(GROUP / 2);
        let (first, second) = (joined(first, &entry), joined(second, &entry));
        let width = first.1.wrapping_add(second.1);
        let codes = first.0.wrapping_shr(second.1 as u32) | second.0;
        self.upper = self.upper.wrapping_shr(width as u32) | codes;
        self.filled += width as u32 & 0xff;
        let at = at % ROOM;
        // Without any bits, those that are written are not kept.
        let bits = self.upper.wrapping_shr(64 - self.filled);
        buffer[at..at + 8].copy_from_slice(&bits.to_le_bytes());
        let end = at + (self.filled / 8) as usize;
        self.filled %= 8;
        end
    }
}

/// The codes of symbols, in the uppermost bits, above others of any value, and their total length in the lowest byte of the
/// second number. Halves of a group are joined by themselves, so that few instructions wait for those of the group before.
#[inline(always)]
fn joined(symbols: &[u16], entry: impl Fn(u16) -> u64) -> (u64, u64) {
    symbols.iter().fold((0, 0), |(codes, width): (u64, u64), &symbol| {
        let entry = entry(symbol);
        // Shifts by the lowest six bits of the entry: its length. The length itself is below what is used.
        (codes.wrapping_shr(entry as u32) | entry, width.wrapping_add(entry))
    })
}
