//! Selection of elements near the largest of their bin.
//!
//! A bin is a run of consecutive elements of fixed length; the last may be shorter.

use alloc::vec::Vec;
use core::ops::Range;

use fearless_simd::prelude::*;

use super::chosen::append_places;
use super::{cases, kernel};

kernel! {
    /// Appends the largest absolute value of each bin.
    ///
    /// # Panics
    /// If the length of a bin is 0.
    pub fn bin_maxima(values: &[f32], bin: usize, maxima: &mut Vec<f32>) {
        for bin in values.chunks(bin) {
            let bits = bin.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
            maxima.push(f32::from_bits(bits));
        }
    }
}

/// The selection criterion of bins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near<'a> {
    /// The number of elements in a bin.
    pub bin: usize,
    /// The limit of each bin; a bin with limit 0 selects no element.
    pub limits: &'a [f32],
    /// The factor of the gradient.
    pub weight: f32,
}

kernel! {
    /// Appends `base` + index of each non-zero element x of `values` with |x + weight·g| at or
    /// above the limit of its bin, where g is the element of `gradient`.
    ///
    /// # Panics
    /// If the lengths differ, the length of a bin is 0, or there are fewer limits than bins.
    pub fn reaching(
        simd,
        values: &[f32],
        gradient: &[f32],
        near: Near<'_>,
        base: u32,
        positions: &mut Vec<u32>,
    ) {
        let (size, len) = (S::f32s::LEN, values.len());
        assert!(len == gradient.len() && near.limits.len() >= len.div_ceil(near.bin));
        positions.reserve(len + size);
        let elements = [values, gradient];
        let (mut start, vectors) = (0, near.bin.div_ceil(size));
        // The vectors of inner bins end before the list does.
        let (inner, last) = near.limits.split_at(len.saturating_sub(size) / near.bin);
        for &limit in inner {
            let end = start + near.bin;
            append(simd, elements, start..end, vectors, [near.weight, limit], base, positions);
            start = end;
        }
        for &limit in last {
            let end = (start + near.bin).min(len);
            let vectors = (end - start) / size;
            append(simd, elements, start..end, vectors, [near.weight, limit], base, positions);
            start += size * vectors;
            if start < end {
                let near = Near { bin: end - start, limits: &[limit], ..near };
                let first = base.wrapping_add(start as u32);
                plain(&values[start..end], &gradient[start..end], near, first, positions);
            }
            start = end;
        }
    } plain {
        let bins = values.chunks(near.bin).zip(gradient.chunks(near.bin)).zip(near.limits);
        for (at, ((values, gradient), &limit)) in bins.enumerate() {
            let first = base.wrapping_add((at * near.bin) as u32);
            for (i, (x, g)) in values.iter().zip(gradient).enumerate() {
                if limit > 0.0 && *x != 0.0 && (x + near.weight * g).abs() >= limit {
                    positions.push(first.wrapping_add(i as u32));
                }
            }
        }
    }
}

/// Appends `base` + index of each selected element in the first `vectors` vectors of a bin.
///
/// # Panics
/// If there is no capacity for the places of all elements in these vectors.
#[inline(always)]
fn append<S: Simd>(
    simd: S,
    [values, gradient]: [&[f32]; 2],
    bin: Range<usize>,
    vectors: usize,
    [weight, limit]: [f32; 2],
    base: u32,
    positions: &mut Vec<u32>,
) {
    let vectors = if limit > 0.0 { vectors } else { 0 };
    let first = S::u32s::splat(simd, base.wrapping_add(bin.start as u32));
    append_places(
        simd,
        positions,
        first,
        vectors,
        #[inline(always)]
        |i| {
            let at = bin.start + S::f32s::LEN * i;
            let x = S::f32s::from_slice(simd, &values[at..at + S::f32s::LEN]);
            let g = S::f32s::from_slice(simd, &gradient[at..at + S::f32s::LEN]);
            // Multiplies, then adds, without fusing, as the plain loop does.
            let chosen = (x + g * weight).abs().simd_ge(limit) & x.simd_ne(0.0);
            // The lanes behind the end belong to the next bins.
            chosen.to_bitmask() & !(u64::MAX << (bin.end - at).min(63))
        },
    );
}

cases![
    ("bin_maxima", |input, output| {
        for bin in [1, 7, 16, 50] {
            let mut maxima = Vec::new();
            bin_maxima(&input.floats(), bin, &mut maxima);
            output.moved(&maxima);
        }
    }),
    ("reaching", |input, output| {
        for bin in [1, 7, 16, 50] {
            let (values, gradient, mut positions) = (input.floats(), input.more(), Vec::new());
            let mut limits = Vec::new();
            bin_maxima(&values, bin, &mut limits);
            let near = Near { bin, limits: &limits, weight: input.x };
            reaching(&values, &gradient, near, u32::MAX - 9, &mut positions);
            output.bits(positions);
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn maxima_and_selected_elements_by_hand() {
        let values = [1.0, -3.0, 2.0, 0.0, 0.0, 5.0, -4.0];
        let mut maxima = vec![9.0];
        bin_maxima(&values, 3, &mut maxima);
        assert_eq!(maxima, [9.0, 3.0, 5.0, 4.0]);
        // Sums: 3, −3, 4 against 3; 9, 0, 3 against 5, with 0 as the first value; −6 against 4.
        let gradient = [2.0, 0.0, 2.0, 9.0, 0.0, -2.0, -2.0];
        let near = Near { bin: 3, limits: &maxima[1..], weight: 1.0 };
        let mut positions = vec![7];
        reaching(&values, &gradient, near, 100, &mut positions);
        assert_eq!(positions, [7, 100, 101, 102, 106]);
    }

    #[test]
    fn a_bin_of_zeros_selects_nothing() {
        let near = Near { bin: 2, limits: &[0.0, 1.0], weight: 0.0 };
        let mut positions = vec![];
        reaching(&[0.0, 0.0, 1.0], &[1.0; 3], near, 0, &mut positions);
        assert_eq!(positions, [2]);
    }
}
