//! Huffman's code of symbols below 2^16, canonical and with lengths up to a limit.
//!
//! A [`Code`] is fitted to how often symbols occur ([`fit`](Code::fit)), travels as its lengths
//! ([`write`](Code::write), [`read`](Code::read)), and codes and decodes symbols. Lengths are optimal
//! among those up to the limit (package-merge). Codes are handed out in the order of lengths, and of
//! symbols within one length; their bits follow from the first on, the stream's lowest bit first. An
//! alphabet with a single symbol has no stream: the number of symbols says it all.
//!
//! Range: alphabets of up to 2^16 symbols, lengths of up to [`MOST_BITS`] bits. Cost: entropy and at
//! most one bit a symbol; encoding looks up 4 bytes a symbol, decoding 4 of a table of 4·2^longest
//! bytes. A `Code` keeps its tables, so that fitting again allocates nothing in a steady state.
//!
//! Sources: Huffman: "A Method for the Construction of Minimum-Redundancy Codes", Proc. IRE 40,
//! 1952; Larmore, Hirschberg: "A fast algorithm for optimal length-limited Huffman codes", J. ACM 37,
//! 1990.
//!
//! ```
//! use gradwire_bits::huffman::{Code, limit};
//!
//! let symbols = [0, 2, 0, 0, 1, 0];
//! let mut code = Code::default();
//! code.fit(&[4, 1, 1, 0], limit(4));
//! assert_eq!(code.lengths(), [1, 2, 2, 0]);
//! let mut bytes = Vec::new();
//! code.write(&mut bytes);
//! code.encode(&symbols, &mut bytes);
//!
//! let mut received = Code::default();
//! let used = received.read(&bytes, 4, limit(4))?;
//! let mut back = Vec::new();
//! received.decode(&bytes[used..], symbols.len(), &mut back)?;
//! assert_eq!(back, symbols);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

mod lengths;
mod packed;

use alloc::vec::Vec;

use crate::{BitReader, DecodeError};
use lengths::Packages;

/// The longest code that any limit allows.
pub const MOST_BITS: u32 = 18;
/// The most symbols of an alphabet.
pub const MOST_SYMBOLS: usize = 1 << 16;
/// The lowest bits of an entry: a code, or a symbol.
const VALUE: u32 = (1 << 24) - 1;
/// Symbols that are encoded before the output grows again.
const CHUNK: usize = 4096;

/// A limit for alphabets of so many symbols: 12 bits, so that the table stays in the first-level cache,
/// or two more than symbols of one length would take.
pub fn limit(symbols: usize) -> u32 {
    (symbols.max(2).next_power_of_two().ilog2() + 2).clamp(12, MOST_BITS)
}

/// A code, its tables, and working memory.
#[derive(Debug, Default, Clone)]
pub struct Code {
    /// Bits of each symbol's code; 0 for symbols without one.
    lengths: Vec<u8>,
    /// By symbol: the code, and from bit 24 on its length.
    entries: Vec<u32>,
    /// By the next `longest` bits: the symbol, and from bit 24 on the length of its code.
    table: Vec<u32>,
    longest: u32,
    /// The only symbol, whose code is never written.
    single: Option<u16>,
    packages: Packages,
}

impl Code {
    /// Makes room for alphabets of up to so many symbols at their [`limit`], so that neither
    /// [`fit`](Self::fit) nor [`read`](Self::read) allocates.
    pub fn reserve(&mut self, symbols: usize) {
        let limit = limit(symbols);
        room(&mut self.lengths, symbols);
        room(&mut self.entries, symbols);
        room(&mut self.table, 1 << limit);
        self.packages.reserve(symbols, limit);
    }

    /// Fits the code to symbols that occur so often; those that never do have no code.
    ///
    /// # Panics
    /// If there are more than [`MOST_SYMBOLS`], the limit is above [`MOST_BITS`], or more symbols occur
    /// than it has codes for.
    pub fn fit(&mut self, counts: &[u32], limit: u32) {
        assert!(counts.len() <= MOST_SYMBOLS && limit <= MOST_BITS);
        self.packages.lengths(counts, limit, &mut self.lengths);
        self.assign();
    }

    /// Bits of each symbol's code; 0 for symbols without one.
    pub fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// The length of the stream of symbols that occur so often, in bits.
    pub fn len_bits(&self, counts: &[u32]) -> u64 {
        let bits = |(&count, &length): (&u32, &u8)| u64::from(count) * u64::from(length);
        if self.single.is_some() { 0 } else { counts.iter().zip(&self.lengths).map(bits).sum() }
    }

    /// The length of what [`write`](Self::write) appends, in bits before padding.
    pub fn packed_bits(&self) -> u64 {
        packed::len_bits(&self.lengths)
    }

    /// Appends the lengths.
    pub fn write(&self, out: &mut Vec<u8>) {
        packed::write(&self.lengths, out);
    }

    /// Takes over lengths for so many symbols that [`write`](Self::write) wrote with this limit or a lower
    /// one, and returns how many bytes they took. After an error the code is not to be used.
    ///
    /// # Errors
    /// `Truncated`, or `Corrupt` where lengths exceed the limit or are no complete code: some
    /// bits would mean nothing, or two things.
    pub fn read(&mut self, bytes: &[u8], symbols: usize, limit: u32) -> Result<usize, DecodeError> {
        let used = packed::read(bytes, symbols, limit.min(MOST_BITS), &mut self.lengths)?;
        check_complete(&self.lengths)?;
        self.assign();
        self.fill_table();
        Ok(used)
    }

    /// Gives every symbol its code.
    fn assign(&mut self) {
        self.table.clear();
        let mut counts = [0u32; MOST_BITS as usize + 2];
        self.lengths.iter().for_each(|&length| counts[usize::from(length)] += 1);
        counts[0] = 0;
        let used: u32 = counts.iter().sum();
        self.longest = (0..=MOST_BITS).rev().find(|&at| counts[at as usize] > 0).unwrap_or(0);
        let first_used = self.lengths.iter().position(|&length| length > 0);
        self.single = first_used.filter(|_| used == 1).map(|symbol| symbol as u16);
        let (mut next, mut code) = ([0u32; MOST_BITS as usize + 2], 0);
        for length in 1..=MOST_BITS as usize {
            code = (code + counts[length - 1]) << 1;
            next[length] = code;
        }
        self.entries.clear();
        self.entries.extend(self.lengths.iter().map(|&length| {
            if length == 0 {
                return 0;
            }
            let code = &mut next[usize::from(length)];
            let reversed = code.reverse_bits() >> (32 - u32::from(length));
            *code += 1;
            reversed | u32::from(length) << 24
        }));
    }

    /// Fills the decoding table: each code, with all bits that may follow it.
    fn fill_table(&mut self) {
        self.table.clear();
        self.table.resize(1 << self.longest, 0);
        for (symbol, &entry) in self.entries.iter().enumerate() {
            let length = entry >> 24;
            if length > 0 {
                let first = (entry & VALUE) as usize;
                let places = self.table[first..].iter_mut().step_by(1 << length);
                places.for_each(|place| *place = symbol as u32 | length << 24);
            }
        }
    }

    /// Appends the symbols' codes; the last byte is padded with zeros.
    ///
    /// # Panics
    /// If a symbol is not of the alphabet. One without a code is a mistake too, and writes nothing.
    pub fn encode(&self, symbols: &[u16], out: &mut Vec<u8>) {
        if self.single.is_some() || self.longest == 0 {
            return;
        }
        let mut buffer = Buffer::default();
        for chunk in symbols.chunks(CHUNK) {
            // So many codes fit in a word behind seven bits of the byte in progress.
            match 57 / self.longest {
                4.. => self.encode_chunk::<4>(chunk, &mut buffer, out),
                _ => self.encode_chunk::<3>(chunk, &mut buffer, out),
            }
        }
        let used = buffer.filled.div_ceil(8) as usize;
        out.extend_from_slice(&buffer.bits.to_le_bytes()[..used]);
    }

    fn encode_chunk<const GROUP: usize>(
        &self,
        symbols: &[u16],
        buffer: &mut Buffer,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + symbols.len() * self.longest as usize / 8 + 16, 0);
        let mut at = start;
        let (groups, rest) = symbols.as_chunks::<GROUP>();
        for group in groups {
            // The codes of a group are joined among themselves, off the path from group to group.
            let (mut bits, mut width) = (0, 0);
            for &symbol in group {
                let entry = self.entries[usize::from(symbol)];
                bits |= u64::from(entry & VALUE) << width;
                width += entry >> 24;
            }
            at = buffer.put(bits, width, out, at);
        }
        for &symbol in rest {
            let entry = self.entries[usize::from(symbol)];
            at = buffer.put(u64::from(entry & VALUE), entry >> 24, out, at);
        }
        out.truncate(at);
    }

    /// Appends `count` symbols decoded from the front of `bytes`, and returns how many bytes they took. The
    /// code comes from [`read`](Self::read). Of an alphabet with more than one symbol each takes up a
    /// bit at least, so that an untrusted count asks for no more memory than the bytes warrant.
    ///
    /// # Errors
    /// `Truncated`, or `Corrupt` for padding that is not zero, and for symbols of an empty alphabet.
    ///
    /// # Panics
    /// If the code has been fitted, and not read.
    pub fn decode(
        &self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<u16>,
    ) -> Result<usize, DecodeError> {
        if let Some(symbol) = self.single {
            out.resize(out.len() + count, symbol);
            return Ok(0);
        }
        if count == 0 {
            return Ok(0);
        }
        if self.longest == 0 {
            return Err(DecodeError::Corrupt("symbols of an empty alphabet"));
        }
        assert!(!self.table.is_empty(), "only a code that has been read decodes");
        if count > bytes.len().saturating_mul(8) {
            return Err(DecodeError::Truncated);
        }
        out.reserve(count);
        let end = out.len() + count;
        let mut reader = BitReader::new(bytes);
        match BitReader::WINDOW / self.longest {
            4.. => self.decode_groups::<4>(&mut reader, end, out),
            _ => self.decode_groups::<3>(&mut reader, end, out),
        }
        while out.len() < end {
            self.decode_group::<1>(&mut reader, out);
            reader.check()?;
        }
        reader.finish()
    }

    /// Decodes groups of symbols while there are bytes to look at.
    fn decode_groups<const GROUP: usize>(
        &self,
        reader: &mut BitReader<'_>,
        end: usize,
        out: &mut Vec<u16>,
    ) {
        while out.len() + GROUP <= end && reader.check().is_ok() {
            self.decode_group::<GROUP>(reader, out);
        }
    }

    #[inline(always)]
    fn decode_group<const GROUP: usize>(&self, reader: &mut BitReader<'_>, out: &mut Vec<u16>) {
        let mut bits = reader.peek();
        let mask = self.table.len() as u64 - 1;
        let (mut symbols, mut width) = ([0; GROUP], 0);
        for symbol in &mut symbols {
            let entry = self.table[(bits & mask) as usize];
            *symbol = entry as u16;
            bits >>= entry >> 24;
            width += entry >> 24;
        }
        reader.skip(width);
        out.extend_from_slice(&symbols);
    }
}

/// Makes the capacity so large at least.
fn room<T>(values: &mut Vec<T>, capacity: usize) {
    values.reserve(capacity.saturating_sub(values.len()));
}

/// Bits on their way to whole bytes, at most seven between two groups.
#[derive(Default)]
struct Buffer {
    bits: u64,
    filled: u32,
}

impl Buffer {
    /// Adds up to 57 bits and writes a word at `at`, of which whole bytes stay. Returns where they end.
    #[inline(always)]
    fn put(&mut self, bits: u64, width: u32, out: &mut [u8], at: usize) -> usize {
        self.bits |= bits << self.filled;
        self.filled += width;
        out[at..at + 8].copy_from_slice(&self.bits.to_le_bytes());
        let whole = self.filled / 8;
        // All 64 bits may be whole bytes.
        self.bits = self.bits.checked_shr(8 * whole).unwrap_or(0);
        self.filled %= 8;
        at + whole as usize
    }
}

/// Checks that every sequence of bits means one thing: Kraft's sum is 1, or a single symbol has one bit.
fn check_complete(lengths: &[u8]) -> Result<(), DecodeError> {
    let mut sum = 0u64;
    let mut used = 0;
    for &length in lengths.iter().filter(|&&length| length > 0) {
        sum += 1 << (MOST_BITS - u32::from(length));
        used += 1;
    }
    let whole = 1 << MOST_BITS;
    match (used, sum) {
        (0, _) => Ok(()),
        (1, sum) if sum == whole / 2 => Ok(()),
        (1, _) => Err(DecodeError::Corrupt("a Huffman code of one symbol has more than one bit")),
        (_, sum) if sum > whole => {
            Err(DecodeError::Corrupt("a Huffman code has more codes than bits"))
        }
        (_, sum) if sum < whole => {
            Err(DecodeError::Corrupt("a Huffman code leaves bits without meaning"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
