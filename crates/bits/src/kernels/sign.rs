//! Sign bits: the sign of element i is bit i mod 8 of byte i / 8.

use super::vectorised;

/// Packs the signs of `values`: 1 for values at or above zero. Bits past the end are 0.
///
/// # Panics
/// If the length of `bits` is not `values.len().div_ceil(8)`.
pub fn signs(values: &[f32], bits: &mut [u8]) {
    assert_eq!(bits.len(), values.len().div_ceil(8));
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::Level::Avx512.is_used() {
        let (groups, rest) = values.as_chunks::<16>();
        let (packed, last) = bits.split_at_mut(2 * groups.len());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::signs(groups, packed.as_chunks_mut().0) };
        return signs_scalar(rest, last);
    } else if super::level::Level::Avx2.is_used() {
        let (groups, rest) = values.as_chunks::<8>();
        let (packed, last) = bits.split_at_mut(groups.len());
        // SAFETY: as above.
        unsafe { avx2::signs(groups, packed) };
        return signs_scalar(rest, last);
    }
    signs_scalar(values, bits);
}

fn signs_scalar(values: &[f32], bits: &mut [u8]) {
    for (values, packed) in values.chunks(8).zip(bits) {
        let bit = |(i, &x): (usize, &f32)| u8::from(x >= 0.0) << i;
        *packed = values.iter().enumerate().map(bit).sum();
    }
}

vectorised! {
    /// Packs the sign bits of `values`: 1 for values below zero and for −0. Bits past the end are
    /// 0.
    ///
    /// # Panics
    /// If the length of `bits` is not `values.len().div_ceil(8)`.
    pub fn sign_bits / sign_bits_scalar(values: &[f32], bits: &mut [u8]) {
        assert_eq!(bits.len(), values.len().div_ceil(8));
        let bit = |(at, x): (usize, &f32)| x.to_bits() >> 31 << at;
        let pack = |values: &[f32]| values.iter().enumerate().map(bit).sum::<u32>() as u8;
        let (eights, rest) = values.as_chunks::<8>();
        eights.iter().zip(&mut *bits).for_each(|(values, byte)| *byte = pack(values));
        if let ([_, ..], [.., last]) = (rest, bits) {
            *last = pack(rest);
        }
    }
}

/// Packs the signs of `values` (1 for values at or above zero) and leaves `value − positive` or
/// `value − negative` in `values`, according to the sign. Bits past the end are 0.
///
/// # Panics
/// If the length of `bits` is not `values.len().div_ceil(8)`.
pub fn sign_residual(values: &mut [f32], negative: f32, positive: f32, bits: &mut [u8]) {
    assert_eq!(bits.len(), values.len().div_ceil(8));
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::Level::Avx512.is_used() {
        let (groups, rest) = values.as_chunks_mut::<16>();
        let (packed, last) = bits.split_at_mut(2 * groups.len());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::residual(groups, negative, positive, packed) };
        return sign_residual_scalar(rest, negative, positive, last);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::Level::Avx2.is_used() {
        let (groups, rest) = values.as_chunks_mut::<8>();
        let (packed, last) = bits.split_at_mut(groups.len());
        // SAFETY: as above.
        unsafe { avx2::residual(groups, negative, positive, packed) };
        return sign_residual_scalar(rest, negative, positive, last);
    }
    sign_residual_scalar(values, negative, positive, bits);
}

fn sign_residual_scalar(values: &mut [f32], negative: f32, positive: f32, bits: &mut [u8]) {
    for (values, packed) in values.chunks_mut(8).zip(bits) {
        let mut byte = 0;
        for (i, x) in values.iter_mut().enumerate() {
            let above = *x >= 0.0;
            byte |= u8::from(above) << i;
            *x -= if above { positive } else { negative };
        }
        *packed = byte;
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn signs(groups: &[[f32; 16]], bits: &mut [[u8; 2]]) {
        for (group, bits) in groups.iter().zip(bits) {
            // SAFETY: the group holds the sixteen floats that are read.
            let x = unsafe { _mm512_loadu_ps(group.as_ptr()) };
            *bits = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, _mm512_setzero_ps()).to_le_bytes();
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn residual(
        groups: &mut [[f32; 16]],
        negative: f32,
        positive: f32,
        bits: &mut [u8],
    ) {
        let zero = _mm512_setzero_ps();
        let (below, above) = (_mm512_set1_ps(negative), _mm512_set1_ps(positive));
        for (group, bits) in groups.iter_mut().zip(bits.as_chunks_mut::<2>().0) {
            // SAFETY: the group holds the sixteen floats that are read, and then written.
            unsafe {
                let x = _mm512_loadu_ps(group.as_ptr());
                let mask = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, zero);
                let level = _mm512_mask_blend_ps(mask, below, above);
                _mm512_storeu_ps(group.as_mut_ptr(), _mm512_sub_ps(x, level));
                *bits = mask.to_le_bytes();
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn add(bits: &[u8], negative: f32, positive: f32, groups: &mut [[f32; 16]]) {
        let (below, above) = (_mm512_set1_ps(negative), _mm512_set1_ps(positive));
        for (group, bits) in groups.iter_mut().zip(bits.as_chunks::<2>().0) {
            let level = _mm512_mask_blend_ps(u16::from_le_bytes(*bits), below, above);
            // SAFETY: the group holds the sixteen floats that are read, and then written.
            unsafe {
                let sum = _mm512_add_ps(_mm512_loadu_ps(group.as_ptr()), level);
                _mm512_storeu_ps(group.as_mut_ptr(), sum);
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn signs(groups: &[[f32; 8]], bits: &mut [u8]) {
        for (group, bits) in groups.iter().zip(bits) {
            // SAFETY: the group holds the eight floats that are read.
            let x = unsafe { _mm256_loadu_ps(group.as_ptr()) };
            let above = _mm256_cmp_ps::<_CMP_GE_OQ>(x, _mm256_setzero_ps());
            *bits = _mm256_movemask_ps(above) as u8;
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn residual(groups: &mut [[f32; 8]], negative: f32, positive: f32, bits: &mut [u8]) {
        let zero = _mm256_setzero_ps();
        let (below, above) = (_mm256_set1_ps(negative), _mm256_set1_ps(positive));
        for (group, bits) in groups.iter_mut().zip(bits) {
            // SAFETY: the group holds the eight floats that are read, and then written.
            unsafe {
                let x = _mm256_loadu_ps(group.as_ptr());
                let mask = _mm256_cmp_ps::<_CMP_GE_OQ>(x, zero);
                let level = _mm256_blendv_ps(below, above, mask);
                _mm256_storeu_ps(group.as_mut_ptr(), _mm256_sub_ps(x, level));
                *bits = _mm256_movemask_ps(mask) as u8;
            }
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn add(bits: &[u8], negative: f32, positive: f32, groups: &mut [[f32; 8]]) {
        let (below, above) = (_mm256_set1_ps(negative), _mm256_set1_ps(positive));
        let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        for (group, &bits) in groups.iter_mut().zip(bits) {
            let bits = _mm256_and_si256(_mm256_set1_epi32(i32::from(bits)), lanes);
            let mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, lanes));
            let level = _mm256_blendv_ps(below, above, mask);
            // SAFETY: the group holds the eight floats that are read, and then written.
            unsafe {
                let sum = _mm256_add_ps(_mm256_loadu_ps(group.as_ptr()), level);
                _mm256_storeu_ps(group.as_mut_ptr(), sum);
            }
        }
    }
}

/// Adds `positive` to the elements of `out` whose bit is 1, and `negative` to the others.
///
/// # Panics
/// If the length of `bits` is not `out.len().div_ceil(8)`.
pub fn sign_add(bits: &[u8], negative: f32, positive: f32, out: &mut [f32]) {
    assert_eq!(bits.len(), out.len().div_ceil(8));
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::Level::Avx512.is_used() {
        let (groups, rest) = out.as_chunks_mut::<16>();
        let (packed, last) = bits.split_at(2 * groups.len());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::add(packed, negative, positive, groups) };
        return sign_add_scalar(last, negative, positive, rest);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::Level::Avx2.is_used() {
        let (groups, rest) = out.as_chunks_mut::<8>();
        let (packed, last) = bits.split_at(groups.len());
        // SAFETY: as above.
        unsafe { avx2::add(packed, negative, positive, groups) };
        return sign_add_scalar(last, negative, positive, rest);
    }
    sign_add_scalar(bits, negative, positive, out);
}

fn sign_add_scalar(bits: &[u8], negative: f32, positive: f32, out: &mut [f32]) {
    for (out, &byte) in out.chunks_mut(8).zip(bits) {
        for (i, out) in out.iter_mut().enumerate() {
            *out += if byte & 1 << i != 0 { positive } else { negative };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_by_hand() {
        let mut values = [1.0, -1.0, 0.0, -0.0, 3.0, -2.0, -2.0, 1.0, -5.0];
        let mut bits = [0xff; 2];
        signs(&values, &mut bits);
        assert_eq!(bits, [0b1001_1101, 0]);
        sign_bits(&values, &mut bits);
        assert_eq!(bits, [0b0110_1010, 1]);
        sign_residual(&mut values, -2.0, 1.0, &mut bits);
        assert_eq!(bits, [0b1001_1101, 0]);
        assert_eq!(values, [0.0, 1.0, -1.0, -1.0, 2.0, 0.0, 0.0, 0.0, -3.0]);
        let mut out = [10.0; 9];
        sign_add(&bits, -2.0, 1.0, &mut out);
        assert_eq!(out, [11.0, 8.0, 11.0, 11.0, 11.0, 8.0, 8.0, 11.0, 8.0]);
    }
}
