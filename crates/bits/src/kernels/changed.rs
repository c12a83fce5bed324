//! Elements that differ between two versions, and new elements at their places.
//!
//! Elements are 1, 2, 4 or 8 bytes, at any alignment.

use fearless_simd::prelude::*;

use super::prefetch::prefetch_line;
use super::{by_width, cases, kernel};

kernel! {
    /// Finds the elements of `width` bytes that differ: bit i mod 64 of word i / 64 is 1 if element
    /// i of `new` is not the one of `base`. Bits past the end are 0. Returns the number of ones.
    ///
    /// # Panics
    /// If the width is not 1, 2, 4 or 8, the lengths differ or are not a multiple of it, or `bits`
    /// is not one word for each 64 elements.
    pub fn changed(
        simd,
        width: usize,
        base: &[u8],
        new: &[u8],
        bits: &mut [u64],
    ) -> usize {
        check(width, base.len(), new.len(), bits.len());
        let whole = base.len() / (64 * width);
        let (words, last) = bits.split_at_mut(whole);
        let (base, base_rest) = base.split_at(64 * width * whole);
        let (new, new_rest) = new.split_at(64 * width * whole);
        let count = by_width!(width => compare<S, _>(simd, base, new, words));
        count + plain(width, base_rest, new_rest, last)
    } plain {
        let pairs = base.chunks(64 * width).zip(new.chunks(64 * width));
        let words = pairs.zip(&mut *bits).map(|((base, new), word)| {
            let elements = base.chunks(width).zip(new.chunks(width)).enumerate();
            *word = elements.map(|(at, (base, new))| u64::from(base != new) << at).sum();
            word.count_ones() as usize
        });
        words.sum()
    }
}

fn check(width: usize, base: usize, new: usize, words: usize) {
    assert!(matches!(width, 1 | 2 | 4 | 8), "elements have 1, 2, 4 or 8 bytes");
    assert!(base == new && base.is_multiple_of(width), "both have the same whole elements");
    assert_eq!(words, (base / width).div_ceil(64), "a word for each 64 elements");
}

/// Bytes from a group that is read to the one that is asked for.
const AHEAD: usize = 4096;

/// Compares whole groups of 64 elements, which are the lanes of `V`.
#[inline(always)]
fn compare<S: Simd, V: SimdInt<S, ByteVector = S::u8s>, const WIDTH: usize>(
    simd: S,
    base: &[u8],
    new: &[u8],
    words: &mut [u64],
) -> usize {
    let (bytes, group) = (S::u8s::LEN, 64 * WIDTH);
    let (mut count, mut ahead) = (0, AHEAD);
    let (whole, whole_new) = (base, new);
    for ((base, new), word) in base.chunks_exact(group).zip(new.chunks_exact(group)).zip(words) {
        for line in (0..group).step_by(64) {
            prefetch_line(whole, ahead + line);
            prefetch_line(whole_new, ahead + line);
        }
        ahead += group;
        let mut ones = 0;
        let vectors = base.chunks_exact(bytes).zip(new.chunks_exact(bytes));
        for (at, (base, new)) in vectors.enumerate() {
            let base: V = S::u8s::from_slice(simd, base).bitcast();
            let new: V = S::u8s::from_slice(simd, new).bitcast();
            ones |= base.simd_ne(new).to_bitmask() << (at * V::LEN % 64);
        }
        *word = ones;
        count += ones.count_ones() as usize;
    }
    count
}

kernel! {
    /// Writes values of `width` bytes over the elements at `positions`.
    ///
    /// # Panics
    /// If the width is not 1, 2, 4 or 8, there is not a value for each position, or a position is
    /// past the end.
    pub fn scatter(width: usize, positions: &[u32], values: &[u8], elements: &mut [u8]) {
        assert_eq!(values.len(), positions.len() * width, "a value for each position");
        match width {
            1 => scatter_each::<1>(positions, values, elements),
            2 => scatter_each::<2>(positions, values, elements),
            4 => scatter_each::<4>(positions, values, elements),
            8 => scatter_each::<8>(positions, values, elements),
            _ => panic!("elements have 1, 2, 4 or 8 bytes"),
        }
    }
}

/// From a position to the one whose element is asked for.
const LATER: usize = 24;

#[inline(always)]
fn scatter_each<const WIDTH: usize>(positions: &[u32], values: &[u8], elements: &mut [u8]) {
    let elements = elements.as_chunks_mut::<WIDTH>().0;
    for (at, (&position, value)) in positions.iter().zip(values.as_chunks().0).enumerate() {
        if let Some(&later) = positions.get(at + LATER) {
            prefetch_line(elements.as_flattened(), later as usize * WIDTH);
        }
        elements[position as usize] = *value;
    }
}

cases![
    ("changed", |input, output| {
        for width in [1, 2, 4, 8] {
            let (base, new) = versions(input, width);
            let mut bits = input.elements(input.len.div_ceil(64), |_| 9u64);
            output.bits([changed(width, &base, &new, &mut bits) as u32]);
            output.words(&bits);
        }
    }),
    ("scatter", |input, output| {
        for width in [1, 2, 4, 8] {
            let (mut base, new) = versions(input, width);
            let positions: Vec<u32> = (0..input.len as u32).rev().step_by(3).collect();
            scatter(width, &positions, &new[..width * positions.len()], &mut base);
            output.bits(base.iter().copied());
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn changes_by_hand() {
        let base = [0u8; 160];
        let mut new = base;
        (new[0], new[3], new[127], new[128], new[159]) = (1, 1, 0x80, 1, 9);
        for (width, expected) in [
            (1, vec![0b1001, 1 << 63, 1 | 1 << 31]),
            (2, vec![0b11 | 1 << 63, 1 | 1 << 15]),
            (4, vec![1 | 1 << 31 | 1 << 32 | 1 << 39]),
            (8, vec![1 | 1 << 15 | 1 << 16 | 1 << 19]),
        ] {
            let mut bits = vec![7; expected.len()];
            let count = changed(width, &base, &new, &mut bits);
            assert_eq!(bits, expected, "{width}");
            assert_eq!(count, expected.iter().map(|word| word.count_ones() as usize).sum());
        }
        assert_eq!(changed(4, &[], &[], &mut []), 0);
    }

    #[test]
    fn values_by_hand() {
        let mut elements = [0; 8];
        scatter(2, &[3, 0], &[1, 2, 3, 4], &mut elements);
        assert_eq!(elements, [3, 4, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn positions_past_the_end_are_refused() {
        scatter(2, &[4], &[1, 2], &mut [0; 8]);
    }
}
