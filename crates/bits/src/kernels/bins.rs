//! Selection of elements near the largest of their bin.
//!
//! A bin is a run of consecutive elements of fixed length; the last may be shorter.

use alloc::vec::Vec;

use fearless_simd::prelude::*;

use super::chosen::append_places;
use super::kernel;

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
    pub fn reaching / plain_reaching(
        simd,
        values: &[f32],
        gradient: &[f32],
        near: Near<'_>,
        base: u32,
        positions: &mut Vec<u32>,
    ) {
        let (size, len) = (S::f32s::LEN, values.len());
        assert!(len == gradient.len() && near.limits.len() >= len.div_ceil(near.bin));
        let lanes = S::i32s::from_fn(simd, |lane| lane as i32);
        let mut end = 0;
        for &limit in near.limits {
            let start = end;
            end = (start + near.bin).min(len);
            let mut at = if limit > 0.0 { start } else { end };
            positions.reserve(end - at + size);
            let mut first = S::u32s::splat(simd, base.wrapping_add(at as u32));
            let vectors = values[at..end].chunks_exact(size);
            for (x, g) in vectors.zip(gradient[at..end].chunks_exact(size)) {
                let chosen = reached(simd, x, g, near.weight, limit);
                append_places(simd, positions, first, 1, |_| chosen.to_bitmask());
                first += size as u32;
            }
            at = end - (end - at) % size;
            if at < end && at + size <= len {
                // The other lanes belong to the next bins.
                let here = lanes.simd_lt((end - at) as i32);
                let (x, g) = (&values[at..at + size], &gradient[at..at + size]);
                let chosen = reached(simd, x, g, near.weight, limit) & here;
                append_places(simd, positions, first, 1, |_| chosen.to_bitmask());
            } else if at < end {
                let near = Near { bin: end - at, limits: &[limit], ..near };
                let first = base.wrapping_add(at as u32);
                plain_reaching(&values[at..end], &gradient[at..end], near, first, positions);
            }
        }
    }
}

/// The lanes in which x is not 0 and |x + weight·g| at or above the limit.
#[inline(always)]
fn reached<S: Simd>(simd: S, x: &[f32], g: &[f32], weight: f32, limit: f32) -> S::mask32s {
    let [x, g] = [S::f32s::from_slice(simd, x), S::f32s::from_slice(simd, g)];
    // Multiplies, then adds, without fusing, as the plain loop does.
    (x + g * weight).abs().simd_ge(limit) & x.simd_ne(0.0)
}

fn plain_reaching(
    values: &[f32],
    gradient: &[f32],
    near: Near<'_>,
    base: u32,
    positions: &mut Vec<u32>,
) {
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
