//! Tables for decoding several symbols with each lookup.

use alloc::vec::Vec;

use super::STREAMS_BITS;
use crate::kernels::{Several, Singles};

/// Fills the table of pairs of symbols, which has room, from the table of single symbols.
pub(super) fn fill_pairs(singles: &Singles, table: &mut Vec<u64>) {
    table.clear();
    table.extend(singles.iter().enumerate().map(|(bits, &first)| {
        let (symbol, length) = (first >> 16, first & 0xff);
        let second = singles[bits >> length];
        let both = length + (second & 0xff);
        if both <= STREAMS_BITS {
            pair(symbol | second & 0xffff_0000, 2, both)
        } else {
            pair(symbol, 1, length)
        }
    }));
}

/// An entry of the table of pairs.
fn pair(symbols: u32, number: u32, length: u32) -> u64 {
    u64::from(symbols) << 32 | u64::from(number << 8 | length)
}

/// Fills the table of up to six symbols of one byte, which has room, from the table of single
/// symbols.
pub(super) fn fill_sixes(singles: &Singles, table: &mut Vec<u64>) {
    let single = |bits: usize| {
        let entry = singles[bits];
        u64::from(entry & 0xff_00ff | 1 << 8)
    };
    let pairs: Several = core::array::from_fn(|bits| {
        let first = single(bits);
        let second = single(bits >> (first & 0xff));
        if fit(first, second) { followed_by(first, second) } else { first }
    });
    let longer = |entry: u64, bits: usize| {
        let rest = bits >> (entry & 0xff);
        let (two, one) = (pairs[rest], single(rest));
        let next = if fit(entry, two) { two } else { one };
        if fit(entry, next) { followed_by(entry, next) } else { entry }
    };
    table.clear();
    table.extend((0..pairs.len()).map(|bits| longer(longer(pairs[bits], bits), bits)));
}

/// Whether the index of a table has all bits of two entries.
fn fit(first: u64, second: u64) -> bool {
    (first & 0xff) + (second & 0xff) <= STREAMS_BITS.into()
}

/// The symbols of one entry after those of another one.
fn followed_by(first: u64, second: u64) -> u64 {
    let number = first >> 8 & 0xff;
    // The lowest two bytes are sums.
    (first & !0xffff | second >> 16 << (16 + 8 * number)) + (first & 0xffff) + (second & 0xffff)
}
