//! Messages of positions, signs, and levels (absolute values): one for all elements, one per sign,
//! or none if the receiver knows it.
//!
//! The message begins with a byte for the code of the positions, and their number as varint. Unless
//! this number is 0, the levels follow as f32 (the level above zero first), then a bit for each
//! sign (1: below zero; least significant first, the last byte padded with zeros), and the
//! positions. The message of an empty tensor is empty.

use gradwire_bits::{DecodeError, bitmap, kernels, varint};

use crate::wire::fields;
use crate::wire::positions::{self, PositionCode};
use crate::{Helpers, Workspace};

/// Appends the signs.
pub(super) fn put(values: &[f32], message: &mut Vec<u8>) {
    let start = message.len();
    message.resize(start + bitmap::len(values.len()), 0);
    kernels::sign_bits(values, &mut message[start..]);
}

/// Splits `count` signs off the front of a message.
pub(super) fn take<'a>(message: &mut &'a [u8], count: usize) -> Result<&'a [u8], DecodeError> {
    let signs = fields::take(message, count.div_ceil(8))?;
    if !count.is_multiple_of(8) && signs[count / 8] >> (count % 8) != 0 {
        return Err(DecodeError::Corrupt("a padding bit is set"));
    }
    Ok(signs)
}

/// Whether the sign with index `at` is negative.
pub(super) fn is_negative(signs: &[u8], at: usize) -> bool {
    signs[at / 8] >> (at % 8) & 1 == 1
}

/// Appends the message of elements at `positions` of a tensor with the signs of `values`. The
/// helpers share the positions.
pub(in crate::compressors) fn write(
    levels: &[f32],
    elements: usize,
    positions: &[u32],
    values: &[f32],
    helpers: &mut Helpers,
    message: &mut Vec<u8>,
) {
    if elements == 0 {
        return;
    }
    let code = PositionCode::shortest(positions, elements);
    positions::put_header(code, positions.len(), message);
    if positions.is_empty() {
        return;
    }
    fields::put_f32s(levels, message);
    put(values, message);
    code.encode(positions, elements, helpers, message);
}

/// Adds `weight` times the message to `out`; at most `most` elements are allowed.
pub(super) fn read_add<const LEVELS: usize>(
    message: &[u8],
    most: usize,
    weight: f32,
    workspace: &mut Workspace,
    out: &mut [f32],
) -> Result<(), DecodeError> {
    let Workspace { positions, helpers, .. } = workspace;
    let (levels, signs) = read::<LEVELS>(message, most, out.len(), positions, helpers)?;
    add(signs, [weight * levels[0], weight * -levels[LEVELS - 1]], positions, out, helpers);
    Ok(())
}

/// Checks a message of up to `most` of `elements` elements, reads its positions, which the helpers
/// share, and returns the levels (0 if it has no elements) and the bytes of signs.
pub(in crate::compressors) fn read<'a, const LEVELS: usize>(
    mut message: &'a [u8],
    most: usize,
    elements: usize,
    positions: &mut Vec<u32>,
    helpers: &mut Helpers,
) -> Result<([f32; LEVELS], &'a [u8]), DecodeError> {
    let mut levels = [0.0; LEVELS];
    positions.clear();
    if elements == 0 {
        fields::expect_len(message, 0)?;
        return Ok((levels, &[]));
    }
    let (code, count) = positions::take_header(&mut message, most)?;
    if count == 0 {
        fields::expect_len(message, 0)?;
        return Ok((levels, &[]));
    }
    for level in &mut levels {
        *level = fields::take_scale(&mut message)?;
    }
    let signs = take(&mut message, count)?;
    code.decode(message, count, elements, positions, helpers)?;
    Ok((levels, signs))
}

/// The first level for a sign bit of 0, and minus the second for 1; padding included.
pub(super) fn levels(signs: &[u8], [above, below]: [f32; 2]) -> impl Iterator<Item = f32> {
    (0..8 * signs.len()).map(move |at| if is_negative(signs, at) { -below } else { above })
}

/// Adds the first number at positions with sign bit 0, and the second at positions with sign bit 1.
/// The helpers share the work.
pub(in crate::compressors) fn add(
    signs: &[u8],
    sides: [f32; 2],
    positions: &[u32],
    out: &mut [f32],
    helpers: &mut Helpers,
) {
    debug_assert_eq!(signs.len(), positions.len().div_ceil(8), "each position has a sign");
    helpers.in_stretches(positions, out, |first, positions, start, out| {
        for (positions, &signs) in positions.chunks(8).zip(&signs[first / 8..]) {
            for (bit, &position) in positions.iter().enumerate() {
                out[position as usize - start] += sides[usize::from(signs >> bit & 1)];
            }
        }
    });
}

/// The largest size of a message of up to `most` of `elements` elements: the shortest code of
/// positions is at most a bitmap's length.
pub(in crate::compressors) fn max_len<const LEVELS: usize>(most: usize, elements: usize) -> usize {
    1 + varint::len(most as u64) + 4 * LEVELS + most.div_ceil(8) + bitmap::len(elements)
}
