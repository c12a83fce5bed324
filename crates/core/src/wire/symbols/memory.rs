//! Memory for codes, reserved ahead, so later messages allocate nothing, whatever their code.

use gradwire_bits::DecodeError;
use gradwire_bits::tans::{self, groups};

use super::coding::PART_SYMBOLS;
use super::significance::room;
use crate::workspace::SymbolCoder;

/// The number of symbols to reserve memory for if a list has this many: later lists may be longer,
/// but only `entropy-bits` has lists longer than a part.
pub(super) fn next_len(symbols: usize) -> usize {
    symbols.next_power_of_two().min(PART_SYMBOLS).max(symbols)
}

/// Reserves memory for writing up to `most` symbols: 9 bytes per symbol.
pub(crate) fn reserve(most: usize, coder: &mut SymbolCoder) {
    let SymbolCoder { tans, groups, group_counts, marks, others, left, .. } = coder;
    tans.reserve(tans::MOST_SYMBOLS, most);
    for (buffer, most) in [(groups, most.div_ceil(2)), (marks, most), (others, room(most))] {
        buffer.reserve(most.saturating_sub(buffer.len()));
    }
    for (buffer, most) in [(group_counts, groups::MOST_VALUES), (left, tans::MOST_SYMBOLS)] {
        buffer.reserve(most.saturating_sub(buffer.len()));
    }
}

/// Reserves memory for reading up to `most` symbols: 5 bytes per symbol.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn try_reserve(
    most: usize,
    SymbolCoder { tans, groups, others, .. }: &mut SymbolCoder,
) -> Result<(), DecodeError> {
    tans.try_reserve(tans::MOST_SYMBOLS)?;
    for (buffer, most) in [(groups, most.div_ceil(2)), (others, room(most))] {
        buffer.try_reserve(most.saturating_sub(buffer.len()))?;
    }
    Ok(())
}
