//! Rice code of long lists of positions in parts, which threads write and read side by side.

use std::ops::Range;

use gradwire_bits::{DecodeError, rice};

use crate::Helpers;
use crate::wire::fields;

/// Positions of a part; the last may have fewer. One per cent of four million elements, the least
/// that threads divide, is six parts.
pub(super) const PART: usize = 1 << 13;
/// The bytes before the code of a part: its length, and the end of its range.
const HEADER: usize = 8;

/// The most bytes that parts of up to `count` positions add to a single code: headers, and padding
/// to whole bytes.
pub(super) fn max_extra(count: usize) -> usize {
    count.div_ceil(PART).saturating_mul(HEADER + 1)
}

/// The parts of a list, each with the least position that it may have.
fn parts(positions: &[u32]) -> impl ExactSizeIterator<Item = (u32, &[u32])> + Send {
    positions.chunks(PART).enumerate().map(|(at, part)| {
        let before = at.checked_sub(1).map(|at| positions[(at + 1) * PART - 1]);
        (before.map_or(0, |before| before + 1), part)
    })
}

/// The bytes that the parts take.
pub(super) fn len(positions: &[u32], parameter: u32) -> u64 {
    let of_part = |(first, part): (u32, &[u32])| {
        HEADER as u64 + rice::len_bits_from(first, part, parameter).div_ceil(8)
    };
    parts(positions).map(of_part).sum()
}

/// Appends the parts. The helpers share them.
pub(super) fn put(positions: &[u32], parameter: u32, helpers: &mut Helpers, message: &mut Vec<u8>) {
    helpers.append(
        (),
        |_| (),
        parts(positions),
        message,
        |(first, part), (), list| {
            let start = list.len();
            list.extend_from_slice(&[0; 4]);
            let end = part.last().map_or(first, |&last| last + 1);
            list.extend_from_slice(&end.to_le_bytes());
            rice::encode_from(first, part, parameter, list);
            let len = u32::try_from(list.len() - start - HEADER).expect("fewer than 2^32 bits");
            list[start..start + 4].copy_from_slice(&len.to_le_bytes());
        },
    );
}

/// Replaces the given positions by positions below `elements`, from parts at the front of a
/// message. The helpers share the parts.
pub(super) fn take(
    message: &mut &[u8],
    parameter: u32,
    elements: usize,
    positions: &mut [u32],
    helpers: &mut Helpers,
) -> Result<(), DecodeError> {
    let mut end = 0;
    let parts = positions
        .chunks_mut(PART)
        .map(|positions| (take_part(message, &mut end, elements as u64), positions));
    helpers.try_share(parts, |(part, positions)| {
        let (bytes, range) = part?;
        rice::decode_part(bytes, range, parameter, positions)
    })
}

/// Takes the code and the range of a part off the front of a message; `end` is the end of the part
/// before.
fn take_part<'a>(
    message: &mut &'a [u8],
    end: &mut u64,
    elements: u64,
) -> Result<(&'a [u8], Range<u64>), DecodeError> {
    let (len, next) = (fields::take_u32(message)?, fields::take_u32(message)?);
    let range = *end..next.into();
    *end = range.end;
    if range.end > elements {
        return Err(DecodeError::Corrupt("a part of the positions ends past the tensor"));
    }
    Ok((fields::take(message, len as usize)?, range))
}
