//! Symbols in tANS, one by one or in groups.

use gradwire_bits::tans::{self, groups};
use gradwire_bits::{DecodeError, huffman, try_resize};

use super::coding::List;
use crate::workspace::SymbolCoder;

/// A list has at least this many groups per possible value of a group. With fewer groups, shares
/// are a large part of the message.
const MIN_GROUPS_OF_VALUE: usize = 256;

/// The largest alphabet whose symbols are joined to groups. A group of a larger alphabet could have
/// only two symbols, and would be no faster than a [significance map](super::significance).
const MAX_SYMBOLS_OF_GROUPS: usize = 6;

/// Appends a list in tANS of single symbols, if that is estimated to take fewer than `most_bits`.
pub(super) fn put(
    List { symbols, counts, .. }: List<'_>,
    most_bits: u64,
    SymbolCoder { tans, .. }: &mut SymbolCoder,
    message: &mut Vec<u8>,
) -> bool {
    // Fitting a code takes longer than seeing that it cannot save enough.
    if tans::entropy_bits(counts) >= most_bits {
        return false;
    }
    tans.fit(counts);
    let saves = tans.estimated_bits(counts) < most_bits;
    if saves {
        tans.write(message);
        tans.encode(symbols, message);
    }
    saves
}

/// Reads the output of [`put`], and returns the number of bytes read.
pub(super) fn read(
    message: &[u8],
    alphabet: usize,
    SymbolCoder { tans, .. }: &mut SymbolCoder,
    out: &mut [u16],
) -> Result<usize, DecodeError> {
    let used = tans.read(message, alphabet)?;
    Ok(used + tans.decode(&message[used..], out)?)
}

/// Appends a list in tANS of groups of as many symbols as possible, if some size of groups is
/// estimated to take fewer than `most_bits` and hardly more than the entropy.
pub(super) fn put_groups(
    List { symbols, counts, .. }: List<'_>,
    most_bits: u64,
    coder: &mut SymbolCoder,
    message: &mut Vec<u8>,
) -> bool {
    let entropy = tans::entropy_bits(counts);
    let most_bits = most_bits.min(entropy + entropy / 200 + 256);
    let Some(size) = fit_groups(symbols, counts, most_bits, coder) else { return false };
    message.push(size as u8);
    coder.tans.write(message);
    coder.tans.encode(&coder.groups, message);
    true
}

/// Fits a code to groups of as many symbols as possible, and returns the number of symbols per
/// group; `None` if no size is estimated to take fewer than `most_bits`.
fn fit_groups(
    symbols: &[u16],
    counts: &[u32],
    most_bits: u64,
    SymbolCoder { tans, groups, group_counts, .. }: &mut SymbolCoder,
) -> Option<usize> {
    let alphabet = counts.len();
    let largest = groups::size(alphabet).filter(|_| alphabet <= MAX_SYMBOLS_OF_GROUPS)?;
    let mut fits = |counts: &[u32]| {
        tans.fit(counts);
        tans.estimated_bits(counts) < most_bits
    };
    // More values waste more states on values that hardly occur, and lengthen the shares.
    let enough = |size: &usize| {
        alphabet.pow(*size as u32) * MIN_GROUPS_OF_VALUE <= symbols.len().div_ceil(*size)
    };
    (2..=largest).rev().filter(enough).find(|&size| {
        groups::expected_counts(counts, size, group_counts);
        if !fits(group_counts) {
            return false;
        }
        groups::join(symbols, alphabet, size, groups);
        group_counts.fill(0);
        huffman::count(groups, group_counts);
        fits(group_counts)
    })
}

/// Reads the output of [`put_groups`], and returns the number of bytes read.
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
