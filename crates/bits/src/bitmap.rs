//! Bitmap code of positions: one bit for each place of the universe.
//!
//! Place i is bit i mod 8 of byte i / 8. Cost: 1 bit for each place, whatever the number of
//! positions: shorter than [Rice codes](crate::rice) from about a quarter of the places on.

use alloc::vec::Vec;

use crate::DecodeError;
use crate::error::expect_len;

/// The bytes of a bitmap over `universe` places.
pub fn len(universe: usize) -> usize {
    universe.div_ceil(8)
}

/// Appends the bitmap of `positions`.
///
/// # Panics
/// If a position lies outside the universe.
pub fn encode(positions: &[u32], universe: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len(universe), 0);
    let bits = &mut out[start..];
    for &position in positions {
        assert!((position as usize) < universe, "position {position} is not below {universe}");
        bits[position as usize / 8] |= 1 << (position % 8);
    }
}

/// The number of positions in a bitmap, which is checked: its length, and that the bits past the
/// universe are 0.
pub fn count(bytes: &[u8], universe: usize) -> Result<usize, DecodeError> {
    expect_len(bytes, len(universe))?;
    let used = universe % 8;
    if used != 0 && bytes[bytes.len() - 1] >> used != 0 {
        return Err(DecodeError::Corrupt("padding bits are not zero"));
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: usize = words.iter().map(|w| u64::from_le_bytes(*w).count_ones() as usize).sum();
    Ok(in_words + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>())
}

/// Calls `visit` for each position, in increasing order, and returns their number. A malformed
/// bitmap is refused before the first call.
pub fn for_each(
    bytes: &[u8],
    universe: usize,
    mut visit: impl FnMut(u32),
) -> Result<usize, DecodeError> {
    let positions = count(bytes, universe)?;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut base = 0;
    for word in words {
        let mut bits = u64::from_le_bytes(*word);
        while bits != 0 {
            visit(base + bits.trailing_zeros());
            bits &= bits - 1;
        }
        base += 64;
    }
    for &byte in rest {
        let mut bits = byte;
        while bits != 0 {
            visit(base + bits.trailing_zeros());
            bits &= bits - 1;
        }
        base += 8;
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn positions(bytes: &[u8], universe: usize) -> Result<Vec<u32>, DecodeError> {
        let mut all = Vec::new();
        let count = for_each(bytes, universe, |position| all.push(position))?;
        assert_eq!(count, all.len());
        Ok(all)
    }

    #[test]
    fn bits_by_hand() {
        let mut out = vec![1];
        encode(&[0, 2, 9], 10, &mut out);
        assert_eq!(out, [1, 0b0000_0101, 0b0000_0010]);
        assert_eq!(positions(&out[1..], 10), Ok(vec![0, 2, 9]));
        assert_eq!(positions(&[], 0), Ok(vec![]));
    }

    #[test]
    fn malformed_bitmaps_are_refused() {
        assert_eq!(positions(&[0], 10), Err(DecodeError::Truncated));
        assert_eq!(positions(&[0; 3], 10), Err(DecodeError::Trailing { extra: 1 }));
        let padded = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(positions(&[0, 0b0000_0100], 10), Err(padded));
    }

    proptest! {
        #[test]
        fn positions_return(taken: Vec<bool>) {
            let chosen: Vec<u32> =
                (0..taken.len() as u32).filter(|&i| taken[i as usize]).collect();
            let mut out = vec![];
            encode(&chosen, taken.len(), &mut out);
            prop_assert_eq!(out.len(), len(taken.len()));
            prop_assert_eq!(positions(&out, taken.len()), Ok(chosen));
        }
    }
}
