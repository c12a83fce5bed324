//! Lists in four streams, each of a quarter, with the lengths of the first three in front.

use crate::DecodeError;

/// The number of streams.
pub(crate) const STREAMS: usize = 4;
/// The bytes of the lengths.
pub(crate) const LENGTHS: usize = 4 * (STREAMS - 1);

/// The parts of a list for the streams.
pub(crate) fn quarters<S>(symbols: &[S]) -> [&[S]; STREAMS] {
    let (length, mut rest) = (symbols.len().div_ceil(STREAMS), symbols);
    core::array::from_fn(|_| {
        let (part, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        part
    })
}

pub(crate) fn quarters_mut<S>(symbols: &mut [S]) -> [&mut [S]; STREAMS] {
    let (length, mut rest) = (symbols.len().div_ceil(STREAMS), symbols);
    core::array::from_fn(|_| {
        let end = length.min(rest.len());
        let (part, after) = core::mem::take(&mut rest).split_at_mut(end);
        rest = after;
        part
    })
}

/// The starts of the streams.
pub(crate) fn starts(bytes: &[u8]) -> Result<[usize; STREAMS], DecodeError> {
    let lengths = bytes.first_chunk::<LENGTHS>().ok_or(DecodeError::Truncated)?.as_chunks::<4>().0;
    let mut starts = [LENGTHS; STREAMS];
    for (i, length) in lengths.iter().enumerate() {
        let length = u32::from_le_bytes(*length) as usize;
        starts[i + 1] = starts[i].saturating_add(length);
    }
    if starts[STREAMS - 1] > bytes.len() {
        return Err(DecodeError::Truncated);
    }
    Ok(starts)
}

/// Writes the lengths at the front of `bytes`.
pub(crate) fn put_lengths(lengths: [usize; STREAMS - 1], bytes: &mut [u8]) {
    let (places, _) = bytes.as_chunks_mut::<4>();
    for (place, length) in places.iter_mut().zip(lengths) {
        *place = u32::try_from(length).expect("a stream is too long").to_le_bytes();
    }
}
