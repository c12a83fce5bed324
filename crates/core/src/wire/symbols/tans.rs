//! Symbols in tANS, one by one or in groups.

use gradwire_bits::tans::{self, groups};
use gradwire_bits::{DecodeError, huffman, try_resize};

use super::Coding;
use crate::workspace::SymbolCoder;

/// The least number of groups for each of their values: with fewer, shares are a large part of the message.
const LEAST_EACH: usize = 256;

/// Reserves memory for writing up to `most` symbols of an alphabet with `least` symbols or more, so that later messages allocate
/// nothing.
pub(crate) fn reserve(least: usize, most: usize, coder: &mut SymbolCoder) {
    let SymbolCoder { tans, groups, group_counts, .. } = coder;
    tans.reserve(tans::MOST_SYMBOLS, most);
    if groups::size(least).is_some() {
        groups.clear();
        groups.reserve(most.div_ceil(2));
        group_counts.clear();
        group_counts.reserve(groups::MOST_VALUES);
    }
}

/// As [`reserve`], for reading.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn try_reserve(
    least: usize,
    most: usize,
    SymbolCoder { tans, groups, .. }: &mut SymbolCoder,
) -> Result<(), DecodeError> {
    tans.try_reserve(tans::MOST_SYMBOLS)?;
    if groups::size(least).is_some() {
        groups.clear();
        groups.try_reserve(most.div_ceil(2))?;
    }
    Ok(())
}

/// Appends symbols, which have been counted, in tANS, if that saves more than a fiftieth of `others` bytes: it is slower than Huffman
/// code. Returns which form it is.
pub(super) fn put(
    symbols: &[u16],
    coder: &mut SymbolCoder,
    others: u64,
    message: &mut Vec<u8>,
) -> Option<Coding> {
    let most_bits = 8 * others - 8 * others / 50;
    let counts = &coder.counts;
    if counts.len() > tans::MOST_SYMBOLS {
        return None;
    }
    let entropy = tans::entropy_bits(counts);
    if entropy >= most_bits {
        return None;
    }
    let start = message.len();
    if fit_groups(symbols, most_bits.min(entropy + entropy / 200 + 256), coder, message) {
        coder.tans.write(message);
        coder.tans.encode(&coder.groups, message);
        return shorter(start, others, message).then_some(Coding::Groups);
    }
    let SymbolCoder { counts, tans, .. } = coder;
    tans.fit(counts);
    if tans.estimated_bits(counts) >= most_bits {
        return None;
    }
    tans.write(message);
    tans.encode(symbols, message);
    shorter(start, others, message).then_some(Coding::Tans)
}

/// Fits a code to groups of as many symbols as possible, and appends their size, if the code may have this many bits.
fn fit_groups(
    symbols: &[u16],
    most_bits: u64,
    SymbolCoder { counts, tans, groups, group_counts, .. }: &mut SymbolCoder,
    message: &mut Vec<u8>,
) -> bool {
    let alphabet = counts.len();
    let mut fits = |counts: &[u32]| {
        tans.fit(counts);
        tans.estimated_bits(counts) < most_bits
    };
    // The more values, the more states go to those that hardly occur, and the longer their shares are.
    let enough =
        |size: &usize| alphabet.pow(*size as u32) * LEAST_EACH <= symbols.len().div_ceil(*size);
    let largest = groups::size(alphabet).unwrap_or(1);
    let size = (2..=largest).rev().filter(enough).find(|&size| {
        groups::expected_counts(counts, size, group_counts);
        if !fits(group_counts) {
            return false;
        }
        groups::join(symbols, alphabet, size, groups);
        group_counts.fill(0);
        huffman::count(groups, group_counts);
        fits(group_counts)
    });
    message.extend(size.map(|size| size as u8));
    size.is_some()
}

/// Reads what [`put`] appends for groups, and returns the number of bytes read.
pub(super) fn read_groups(
    message: &[u8],
    alphabet: usize,
    SymbolCoder { tans, groups, .. }: &mut SymbolCoder,
    out: &mut [u16],
) -> Result<usize, DecodeError> {
    let (&size, message) = message.split_first().ok_or(DecodeError::Truncated)?;
    let size = usize::from(size);
    let used = tans.read(message, groups::values(alphabet, size)?)?;
    try_resize(groups, out.len().div_ceil(size), 0)?;
    let decoded = tans.decode(&message[used..], groups)?;
    groups::split(groups, alphabet, size, out)?;
    Ok(1 + used + decoded)
}

/// Whether what was appended is shorter than this, as an estimate may be too low; takes it back if not.
fn shorter(start: usize, others: u64, message: &mut Vec<u8>) -> bool {
    let shorter = ((message.len() - start) as u64) < others;
    if !shorter {
        message.truncate(start);
    }
    shorter
}
