//! Bitmap code of positions: one bit for each position of the universe.
//!
//! Position i is bit i mod 8 of byte ⌊i / 8⌋; the bits of the last byte past the universe are 0.
//!
//! Range: universes of up to 2^32 positions. Cost: 1 bit for each position of the universe,
//! whatever the number and order of the encoded ones. [Rice codes](crate::rice) with their best
//! parameter are shorter for random positions up to a rate of 0.38; there the parameter becomes 0,
//! and they also cost a bit for each position of the universe. Dense bitmaps decode several times
//! faster.
//!
//! ```
//! use gradwire_bits::bitmap;
//!
//! let mut code = Vec::new();
//! bitmap::encode(&[0, 2, 9], 10, &mut code);
//! assert_eq!(code, [0b101, 0b10]);
//!
//! let mut positions = Vec::new();
//! bitmap::decode(&code, 10, &mut positions)?;
//! assert_eq!(positions, [0, 2, 9]);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;
use core::ops::Range;

use crate::{DecodeError, expect_len, kernels};

/// The number of bytes of a bitmap over `universe` positions.
pub fn len(universe: usize) -> usize {
    universe.div_ceil(8)
}

/// Appends the bitmap of `positions`.
///
/// # Panics
/// If a position is outside the universe.
pub fn encode(positions: &[u32], universe: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len(universe), 0);
    set(positions, 0..universe, &mut out[start..]);
}

/// Sets the bits of `positions` in a part of a bitmap, with one bit for each position of the range.
///
/// # Panics
/// If a position is outside the range, or the bits are too few.
pub fn set(positions: &[u32], range: Range<usize>, bits: &mut [u8]) {
    assert!(len(range.len()) <= bits.len(), "the bits are those of the range");
    let (first, count) = (range.start, range.len());
    // Gathers bits in a word: each store to the same byte would wait for the one before.
    let (mut word, mut gathered) = (0, 0u64);
    for &position in positions {
        let place = (position as usize).wrapping_sub(first);
        assert!(place < count, "position {position} is not in {first}..{}", first + count);
        if place / 64 != word {
            add(bits, word, gathered);
            (word, gathered) = (place / 64, 0);
        }
        gathered |= 1 << (place % 64);
    }
    add(bits, word, gathered);
}

/// Adds the ones of `set` to a word of 64 bits; past the end of `bits`, `set` has none.
fn add(bits: &mut [u8], word: usize, set: u64) {
    let (words, rest) = bits.as_chunks_mut();
    match words.get_mut(word) {
        Some(bytes) => *bytes = (u64::from_le_bytes(*bytes) | set).to_le_bytes(),
        None => rest.iter_mut().zip(set.to_le_bytes()).for_each(|(byte, set)| *byte |= set),
    }
}

/// The number of positions in a bitmap. Checks the bitmap's length, that the bits past the universe
/// are 0, and that the universe has at most 2^32 positions.
pub fn count(bytes: &[u8], universe: usize) -> Result<usize, DecodeError> {
    if universe as u64 > 1 << 32 {
        return Err(DecodeError::Corrupt("a bitmap has more than 2^32 positions"));
    }
    expect_len(bytes, len(universe))?;
    let used = universe % 8;
    if used != 0 && bytes[bytes.len() - 1] >> used != 0 {
        return Err(DecodeError::Corrupt("padding bits are not zero"));
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: usize = words.iter().map(|w| u64::from_le_bytes(*w).count_ones() as usize).sum();
    Ok(in_words + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>())
}

/// Appends the positions in increasing order. Appends nothing if the bitmap is malformed.
///
/// # Errors
/// The errors of [`count`], and [`DecodeError::OutOfMemory`].
pub fn decode(bytes: &[u8], universe: usize, positions: &mut Vec<u32>) -> Result<(), DecodeError> {
    // The kernel writes whole registers past the end.
    positions.try_reserve(count(bytes, universe)? + 64)?;
    kernels::ones(bytes, 0, positions);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// The positions of a bitmap.
    fn positions(bytes: &[u8], universe: usize) -> Result<Vec<u32>, DecodeError> {
        let mut all = vec![7];
        let decoded = decode(bytes, universe, &mut all);
        assert_eq!(decoded, count(bytes, universe).map(|_| ()));
        assert_eq!(all.len(), 1 + count(bytes, universe).unwrap_or(0));
        decoded.map(|()| all.split_off(1))
    }

    #[test]
    fn bits_by_hand() {
        let mut out = vec![1];
        encode(&[0, 2, 9], 10, &mut out);
        assert_eq!(out, [1, 0b0000_0101, 0b0000_0010]);
        assert_eq!(positions(&out[1..], 10), Ok(vec![0, 2, 9]));
        let mut part = [0; 2];
        set(&[16, 25], 16..26, &mut part);
        assert_eq!(part, [0b0000_0001, 0b0000_0010]);
        assert_eq!(positions(&[], 0), Ok(vec![]));
        // In any order, and in one word or several.
        let mut out = vec![];
        encode(&[130, 2, 65, 0, 1, 64], 131, &mut out);
        let mut expected = [0; 17];
        (expected[0], expected[8], expected[16]) = (0b111, 0b11, 0b100);
        assert_eq!(out, expected);
    }

    #[test]
    fn positions_at_word_boundaries() {
        let mut out = vec![];
        encode(&[63, 64, 127, 128, 135], 136, &mut out);
        let mut expected = [0; 17];
        (expected[7], expected[8], expected[15], expected[16]) = (0x80, 1, 0x80, 0x81);
        assert_eq!(out, expected);
        assert_eq!(positions(&out, 136), Ok(vec![63, 64, 127, 128, 135]));
    }

    #[test]
    #[should_panic(expected = "position 10 is not in 0..10")]
    fn a_position_outside_is_refused() {
        encode(&[3, 10], 10, &mut vec![]);
    }

    #[test]
    fn malformed_bitmaps_are_refused() {
        assert_eq!(positions(&[0], 10), Err(DecodeError::Truncated));
        assert_eq!(positions(&[0; 3], 10), Err(DecodeError::Trailing { extra: 1 }));
        let padded = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(positions(&[0, 0b0000_0100], 10), Err(padded));
        let wide = DecodeError::Corrupt("a bitmap has more than 2^32 positions");
        assert_eq!(positions(&[], (1 << 32) + 1), Err(wide));
        for end in 0..25 {
            assert_eq!(positions(&[0x11; 25][..end], 200), Err(DecodeError::Truncated));
        }
    }

    proptest! {
        #[test]
        fn positions_round_trip(taken: Vec<bool>) {
            let chosen: Vec<u32> =
                (0..taken.len() as u32).filter(|&i| taken[i as usize]).collect();
            let mut out = vec![];
            encode(&chosen, taken.len(), &mut out);
            prop_assert_eq!(out.len(), len(taken.len()));
            prop_assert_eq!(positions(&out, taken.len()), Ok(chosen));
        }

        #[test]
        fn decoding_then_encoding_returns_the_bytes(bytes: Vec<u8>, short in 0usize..8) {
            let universe = (8 * bytes.len()).saturating_sub(short);
            match positions(&bytes, universe) {
                Ok(read) => {
                    let mut out = vec![];
                    encode(&read, universe, &mut out);
                    prop_assert_eq!(out, bytes);
                }
                Err(error) => {
                    prop_assert_eq!(error, DecodeError::Corrupt("padding bits are not zero"));
                    prop_assert!(bytes[bytes.len() - 1].leading_zeros() < short as u32);
                }
            }
        }
    }
}
