//! Selection of elements near the largest of their bin.
//!
//! A bin is a run of consecutive elements of fixed length; the last may be shorter.

use alloc::vec::Vec;

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

/// Appends `base` + index of each non-zero element x of `values` with |x + weight·g| at or above
/// the limit of its bin, where g is the element of `gradient`.
///
/// # Panics
/// If the lengths differ, the length of a bin is 0, or there are fewer limits than bins.
pub fn reaching(
    values: &[f32],
    gradient: &[f32],
    near: Near<'_>,
    base: u32,
    positions: &mut Vec<u32>,
) {
    assert!(values.len() == gradient.len() && near.limits.len() >= values.len().div_ceil(near.bin));
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        // SAFETY: the processor has the features the function is compiled for; the lengths are
        // equal.
        return unsafe { avx512::reaching(values, gradient, near, base, positions) };
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        // SAFETY: as above.
        return unsafe { avx2::reaching(values, gradient, near, base, positions) };
    }
    reaching_scalar(values, gradient, near, base, positions);
}

fn reaching_scalar(
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

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::Near;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    /// # Safety
    /// `values` and `gradient` have the same length.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) unsafe fn reaching(
        values: &[f32],
        gradient: &[f32],
        near: Near<'_>,
        base: u32,
        positions: &mut Vec<u32>,
    ) {
        let weight = _mm512_set1_ps(near.weight);
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut start = 0;
        for &limit in near.limits {
            let end = (start + near.bin).min(values.len());
            let mut at = if limit > 0.0 { start } else { end };
            let limit = _mm512_set1_ps(limit);
            // Stores whole registers without a branch: about every second one has selected
            // elements, so a branch would be mispredicted.
            positions.reserve(end - at + 16);
            let (found, mut len) = (positions.as_mut_ptr(), positions.len());
            while at < end {
                let here = ((1u32 << (end - at).min(16)) - 1) as __mmask16;
                // SAFETY: lanes past the bin's end are masked out, and the bin is within both.
                let (x, g) = unsafe {
                    (
                        _mm512_maskz_loadu_ps(here, values.as_ptr().add(at)),
                        _mm512_maskz_loadu_ps(here, gradient.as_ptr().add(at)),
                    )
                };
                // Multiplies, then adds, without fusing, as the scalar twin does.
                let sum = _mm512_abs_ps(_mm512_add_ps(x, _mm512_mul_ps(weight, g)));
                // Masked lanes hold 0, which is not sent.
                let mask = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(sum, limit)
                    & _mm512_test_epi32_mask(abs(x), abs(x));
                let first = _mm512_set1_epi32(base.wrapping_add(at as u32) as i32);
                let places = _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(lanes, first));
                // SAFETY: there is room for all elements of the bin and for one more register.
                unsafe { _mm512_storeu_si512(found.add(len).cast(), places) };
                len += mask.count_ones() as usize;
                at += 16;
            }
            // SAFETY: this number of elements has been written.
            unsafe { positions.set_len(len) };
            start = end;
        }
    }

    /// The pattern without its sign: 0 for both zeros.
    #[target_feature(enable = "avx512f,avx512dq")]
    fn abs(x: __m512) -> __m512i {
        _mm512_castps_si512(_mm512_abs_ps(x))
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::Near;
    use crate::kernels::compress::compress;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    /// # Safety
    /// `values` and `gradient` have the same length.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) unsafe fn reaching(
        values: &[f32],
        gradient: &[f32],
        near: Near<'_>,
        base: u32,
        positions: &mut Vec<u32>,
    ) {
        let (sign, zero) = (_mm256_set1_ps(-0.0), _mm256_setzero_ps());
        let weight = _mm256_set1_ps(near.weight);
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mut start = 0;
        for &limit in near.limits {
            let end = (start + near.bin).min(values.len());
            let mut at = if limit > 0.0 { start } else { end };
            let limit = _mm256_set1_ps(limit);
            // Stores whole registers without a branch, as with AVX-512.
            positions.reserve(end - at + 8);
            let (found, mut len) = (positions.as_mut_ptr(), positions.len());
            while at < end {
                let here = _mm256_cmpgt_epi32(_mm256_set1_epi32((end - at).min(8) as i32), lanes);
                // SAFETY: lanes past the bin's end are masked out, and the bin is within both.
                let (x, g) = unsafe {
                    (
                        _mm256_maskload_ps(values.as_ptr().add(at), here),
                        _mm256_maskload_ps(gradient.as_ptr().add(at), here),
                    )
                };
                // Multiplies, then adds, without fusing, as the scalar twin does.
                let sum = _mm256_add_ps(x, _mm256_mul_ps(weight, g));
                let large = _mm256_cmp_ps::<_CMP_GE_OQ>(_mm256_andnot_ps(sign, sum), limit);
                // Masked lanes hold 0, which is not sent.
                let sent = _mm256_and_ps(large, _mm256_cmp_ps::<_CMP_NEQ_UQ>(x, zero));
                let mask = _mm256_movemask_ps(sent) as u8;
                let first = _mm256_set1_epi32(base.wrapping_add(at as u32) as i32);
                let places = compress(_mm256_add_epi32(lanes, first), mask);
                // SAFETY: there is room for all elements of the bin and for one more register.
                unsafe { _mm256_storeu_si256(found.add(len).cast(), places) };
                len += mask.count_ones() as usize;
                at += 8;
            }
            // SAFETY: this number of elements has been written.
            unsafe { positions.set_len(len) };
            start = end;
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
