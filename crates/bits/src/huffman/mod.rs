//! Canonical, length-limited Huffman code of symbols of one or two bytes.
//!
//! A [`Code`] is fitted to the counts of symbols ([`fit`](Code::fit)), is transmitted as its code
//! lengths ([`write`](Code::write), [`read`](Code::read)), and encodes and decodes symbols. Lengths
//! are optimal within the limit (package-merge). Codes are assigned in order of length, then of
//! symbol. The first bit of a code comes first; bytes of the stream fill from the lowest bit. An
//! alphabet with a single symbol needs no stream: the number of symbols suffices.
//!
//! Long lists are faster in [four streams](Code::encode_streams) of a quarter each. A decoder waits
//! for each table entry before it knows where the next code starts, so it decodes four streams in
//! turn.
//!
//! With `code=huffman` in a compressor of gradwire, the byte before a list of symbols gives the
//! form of the list: fixed width, this code in one stream or in four, or [tANS](crate::tans) if
//! frequent symbols make it shorter.
//!
//! Range: alphabets of up to 2^16 symbols, lengths of up to [`MOST_BITS`] bits; with four streams
//! [`STREAMS_BITS`] bits. Cost: at most one bit per symbol above the entropy; encoding looks up 8
//! bytes per symbol (2 in alphabets of up to 256 symbols with codes of at most 12 bits), decoding 4
//! bytes of a table of 4·2^longest bytes, at least 16 KiB. With four streams, short codes are
//! looked up in pairs, or up to six if symbols are bytes, in a table of 32 KiB. A `Code` keeps its
//! tables, so fitting again allocates nothing in a steady state.
//!
//! Sources: Huffman: "A Method for the Construction of Minimum-Redundancy Codes", Proc. IRE 40,
//! 1952; Larmore, Hirschberg: "A fast algorithm for optimal length-limited Huffman codes", J. ACM
//! 37, 1990.
//!
//! ```
//! use gradwire_bits::huffman::{Code, limit};
//!
//! let symbols = [0u16, 2, 0, 0, 1, 0];
//! let mut code = Code::default();
//! code.fit(&[4, 1, 1, 0], limit(4));
//! assert_eq!(code.lengths(), [1, 2, 2, 0]);
//! let mut bytes = Vec::new();
//! code.write(&mut bytes);
//! code.encode(&symbols, &mut bytes);
//!
//! let mut received = Code::default();
//! let used = received.read(&bytes, 4, limit(4))?;
//! let mut back = vec![0u16; symbols.len()];
//! received.decode(&bytes[used..], &mut back)?;
//! assert_eq!(back, symbols);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

mod counts;
mod decode;
mod encode;
mod lengths;
mod packed;
mod several;
mod streams;
mod symbol;

use alloc::vec::Vec;

use crate::DecodeError;
use crate::kernels::{ShortCodes, TABLE_BITS};
use crate::reserve::{room, try_room};
use lengths::Packages;

pub use counts::{count, count_bytes};
pub use streams::{STREAMS_BITS, STREAMS_EXTRA};
pub use symbol::Symbol;

/// The longest code that any limit allows.
pub const MOST_BITS: u32 = 18;
/// The most symbols of an alphabet.
pub const MOST_SYMBOLS: usize = 1 << 16;
/// The largest alphabet whose codes a kernel joins.
const SHORT_SYMBOLS: usize = 256;

/// The length limit for an alphabet of `symbols` symbols: 12 bits, so the table stays in the
/// first-level cache, or two more than a fixed-width code if that is larger.
pub fn limit(symbols: usize) -> u32 {
    (symbols.max(2).next_power_of_two().ilog2() + 2).clamp(12, MOST_BITS)
}

/// A Huffman code with its tables and working memory.
#[derive(Debug, Default, Clone)]
pub struct Code {
    /// The length of each symbol's code in bits; 0 for symbols without a code.
    lengths: Vec<u8>,
    /// By symbol: its code in the uppermost bits, the first one lowest, and its length in the
    /// lowest byte.
    entries: Vec<u64>,
    /// The same for a small alphabet with short codes.
    short: ShortCodes,
    /// By the next bits: the symbol from bit 16 up, and the length of its code in the lowest byte.
    table: Vec<u32>,
    /// By the next bits: one or two symbols from bit 32 up, or up to six of one byte from bit 16
    /// up; their number in the second byte, and the length of their codes in the lowest.
    several: Vec<u64>,
    longest: u32,
    /// The only symbol of an alphabet of one; its code is never written.
    single: Option<u16>,
    packages: Packages,
}

impl Code {
    /// Reserves memory for alphabets of up to `symbols` symbols at their [`limit`], so
    /// [`fit`](Self::fit) allocates nothing.
    pub fn reserve(&mut self, symbols: usize) {
        room(&mut self.lengths, symbols);
        room(&mut self.entries, symbols);
        self.packages.reserve(symbols, limit(symbols));
    }

    /// Reserves memory for alphabets of up to `symbols` symbols at limits up to this one, so
    /// [`read`](Self::read) allocates nothing.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_reserve(&mut self, symbols: usize, limit: u32) -> Result<(), DecodeError> {
        try_room(&mut self.lengths, symbols)?;
        try_room(&mut self.entries, symbols)?;
        if limit <= TABLE_BITS {
            try_room(&mut self.several, 1 << TABLE_BITS)?;
        }
        try_room(&mut self.table, 1 << limit.clamp(TABLE_BITS, MOST_BITS))
    }

    /// Fits the code to the counts of symbols. Symbols with count 0 get no code.
    ///
    /// # Panics
    /// If there are more than [`MOST_SYMBOLS`] counts, the limit is above [`MOST_BITS`], or more
    /// than 2^limit symbols occur.
    pub fn fit(&mut self, counts: &[u32], limit: u32) {
        assert!(counts.len() <= MOST_SYMBOLS && limit <= MOST_BITS);
        self.packages.lengths(counts, limit, &mut self.lengths);
        self.assign();
    }

    /// The length of each symbol's code in bits; 0 for symbols without a code.
    pub fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// The length of the longest code in bits; 0 without any code.
    pub fn longest(&self) -> u32 {
        self.longest
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

    /// Reads the code lengths of `symbols` symbols written by [`write`](Self::write) with this
    /// limit or a lower one, and returns the number of bytes read. The code must not be used after
    /// an error.
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
            u64::from(reversed) << (64 - length) | u64::from(length)
        }));
        if self.is_short() {
            self.short.set(&self.entries);
        }
    }

    /// Whether a kernel joins the codes.
    fn is_short(&self) -> bool {
        self.lengths.len() <= SHORT_SYMBOLS && self.longest <= TABLE_BITS
    }

    /// Fills the decoding table: an entry for each code with any bits after it.
    fn fill_table(&mut self) {
        self.table.clear();
        self.table.resize(1 << self.longest, 0);
        for (symbol, (&entry, &length)) in self.entries.iter().zip(&self.lengths).enumerate() {
            if length > 0 {
                let first = (entry >> (64 - length)) as usize;
                let places = self.table[first..].iter_mut().step_by(1 << length);
                places.for_each(|place| *place = (symbol as u32) << 16 | u32::from(length));
            }
        }
        while self.table.len() < 1 << TABLE_BITS {
            self.table.extend_from_within(..);
        }
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
