//! Canonical, length-limited Huffman code of symbols below 2^16.
//!
//! A [`Code`] is fitted to the counts of symbols ([`fit`](Code::fit)), transmitted as its code lengths
//! ([`write`](Code::write), [`read`](Code::read)), and encodes and decodes symbols. Lengths are optimal
//! among those up to the limit (package-merge). Codes are assigned in order of length, then of symbol. The
//! first bit of a code comes first; bytes of the stream fill from the lowest bit. An alphabet with a
//! single symbol needs no stream: the number of symbols suffices.
//!
//! Range: alphabets of up to 2^16 symbols, lengths of up to [`MOST_BITS`] bits. Cost: at most one bit per
//! symbol above the entropy; encoding looks up 4 bytes per symbol, decoding 4 bytes of a table of
//! 4·2^longest bytes. A `Code` keeps its tables, so fitting again allocates nothing in a steady state.
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

use crate::{BitReader, DecodeError, try_resize};
use lengths::Packages;

/// The longest code that any limit allows.
pub const MOST_BITS: u32 = 18;
/// The most symbols of an alphabet.
pub const MOST_SYMBOLS: usize = 1 << 16;
/// The lowest bits of an entry, which hold a code or a symbol.
const VALUE: u32 = (1 << 24) - 1;
/// The number of symbols that are encoded before the output grows again.
const CHUNK: usize = 4096;

/// The length limit for an alphabet of `symbols` symbols: 12 bits, so that the table stays in the
/// first-level cache, or two more than a fixed-width code takes if that is larger.
pub fn limit(symbols: usize) -> u32 {
    (symbols.max(2).next_power_of_two().ilog2() + 2).clamp(12, MOST_BITS)
}

/// A Huffman code with its tables and working memory.
#[derive(Debug, Default, Clone)]
pub struct Code {
    /// The length of each symbol's code in bits; 0 for symbols without a code.
    lengths: Vec<u8>,
    /// By symbol: its code, and its length from bit 24 up.
    entries: Vec<u32>,
    /// By the next `longest` bits: the symbol, and the length of its code from bit 24 up.
    table: Vec<u32>,
    longest: u32,
    /// The symbol of an alphabet of one, whose code is never written.
    single: Option<u16>,
    packages: Packages,
}

impl Code {
    /// Reserves memory for alphabets of up to `symbols` symbols at their [`limit`], so that
    /// [`fit`](Self::fit) allocates nothing.
    pub fn reserve(&mut self, symbols: usize) {
        room(&mut self.lengths, symbols);
        room(&mut self.entries, symbols);
        self.packages.reserve(symbols, limit(symbols));
    }

    /// Reserves memory for alphabets of up to `symbols` symbols at limits up to this one, so that
    /// [`read`](Self::read) allocates nothing.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_reserve(&mut self, symbols: usize, limit: u32) -> Result<(), DecodeError> {
        try_room(&mut self.lengths, symbols)?;
        try_room(&mut self.entries, symbols)?;
        try_room(&mut self.table, 1 << limit.min(MOST_BITS))
    }

    /// Fits the code to the counts of symbols. Symbols with count 0 get no code.
    ///
    /// # Panics
    /// If there are more than [`MOST_SYMBOLS`] counts, the limit is above [`MOST_BITS`], or more than
    /// 2^limit symbols occur.
    pub fn fit(&mut self, counts: &[u32], limit: u32) {
        assert!(counts.len() <= MOST_SYMBOLS && limit <= MOST_BITS);
        self.packages.lengths(counts, limit, &mut self.lengths);
        self.assign();
    }

    /// The length of each symbol's code in bits; 0 for symbols without a code.
    pub fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// The length of the stream for symbols with the given counts, in bits.
    pub fn len_bits(&self, counts: &[u32]) -> u64 {
        let bits = |(&count, &length): (&u32, &u8)| u64::from(count) * u64::from(length);
        if self.single.is_some() { 0 } else { counts.iter().zip(&self.lengths).map(bits).sum() }
    }

    /// The number of bits that [`write`](Self::write) appends, without padding.
    pub fn packed_bits(&self) -> u64 {
        packed::len_bits(&self.lengths)
    }

    /// Appends the code lengths.
    pub fn write(&self, out: &mut Vec<u8>) {
        packed::write(&self.lengths, out);
    }

    /// Reads the code lengths of `symbols` symbols that [`write`](Self::write) wrote with this limit or a
    /// lower one, and returns the number of bytes read. The code must not be used after an error.
    ///
    /// # Errors
    /// `Truncated`, `OutOfMemory`, or `Corrupt` if a length exceeds the limit, or the lengths are
    /// incomplete or over-subscribed.
    pub fn read(&mut self, bytes: &[u8], symbols: usize, limit: u32) -> Result<usize, DecodeError> {
        self.try_reserve(symbols, limit)?;
        let used = packed::read(bytes, symbols, limit.min(MOST_BITS), &mut self.lengths)?;
        check_complete(&self.lengths)?;
        self.assign();
        self.fill_table();
        Ok(used)
    }

    /// Assigns a canonical code to every symbol.
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

    /// Fills the decoding table: an entry for each code with any bits after it.
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
    /// If a symbol is not in the alphabet. A symbol without a code is a mistake, too, and writes nothing.
    pub fn encode(&self, symbols: &[u16], out: &mut Vec<u8>) {
        if self.single.is_some() || self.longest == 0 {
            return;
        }
        let mut buffer = Buffer::default();
        for chunk in symbols.chunks(CHUNK) {
            // The number of codes that fit in a word after seven bits of the byte in progress.
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
            // Joins the codes of a group first, which shortens the dependency from group to group.
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

    /// Appends `count` symbols decoded from the start of `bytes`, and returns the number of bytes read. The
    /// code must come from [`read`](Self::read). With more than one symbol in the alphabet each takes at
    /// least one bit, so the memory for an untrusted count is bounded by the length of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, `OutOfMemory`, or `Corrupt` for padding that is not zero, and for symbols of an empty
    /// alphabet.
    ///
    /// # Panics
    /// If the code was fitted instead of read.
    pub fn decode(
        &self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<u16>,
    ) -> Result<usize, DecodeError> {
        if let Some(symbol) = self.single {
            try_resize(out, out.len().saturating_add(count), symbol)?;
            return Ok(0);
        }
        if count == 0 {
            return Ok(0);
        }
        if self.longest == 0 {
            return Err(DecodeError::Corrupt("symbols of an empty alphabet"));
        }
        assert!(!self.table.is_empty(), "decoding needs a code from `read`, not from `fit`");
        if count > bytes.len().saturating_mul(8) {
            return Err(DecodeError::Truncated);
        }
        out.try_reserve(count)?;
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

    /// Decodes groups of symbols while enough bytes are left.
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

/// Makes the capacity at least this large.
fn room<T>(values: &mut Vec<T>, capacity: usize) {
    values.reserve(capacity.saturating_sub(values.len()));
}

/// As [`room`], where the capacity comes from a message.
fn try_room<T>(values: &mut Vec<T>, capacity: usize) -> Result<(), DecodeError> {
    Ok(values.try_reserve(capacity.saturating_sub(values.len()))?)
}

/// Bits that do not fill a byte yet, at most seven between two groups.
#[derive(Default)]
struct Buffer {
    bits: u64,
    filled: u32,
}

impl Buffer {
    /// Adds up to 57 bits and writes a word at `at`, of which the whole bytes are kept. Returns their end.
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

/// Checks that the prefix code is complete: the Kraft sum is 1, or a single symbol has one bit.
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
        (1, _) => Err(DecodeError::Corrupt("the only Huffman code is longer than one bit")),
        (_, sum) if sum > whole => {
            Err(DecodeError::Corrupt("the Huffman code lengths are over-subscribed"))
        }
        (_, sum) if sum < whole => {
            Err(DecodeError::Corrupt("the Huffman code lengths are incomplete"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
