//! Ternary quantization, accumulated as base-3 digits.
//!
//! Five calls build the bytes of the [quartic code](crate::quartic): each call multiplies the bytes
//! by three and adds the digits `1 + q` of one fifth of the tensor.

use super::kernel;

/// Quantizes `values` to `q` = +1 above `scale / 2`, −1 below `−scale / 2`, otherwise 0 (a tie
/// becomes 0, as with rounding to even). Leaves `value − q·scale` in `values`, and appends the
/// base-3 digit `1 + q` to each byte of `digits`. The scale is not negative.
///
/// # Panics
/// If the lengths differ.
pub fn ternary_residual(values: &mut [f32], scale: f32, digits: &mut [u8]) {
    assert_eq!(values.len(), digits.len());
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (groups, rest) = values.as_chunks_mut::<64>();
        let (bytes, last) = digits.as_chunks_mut::<64>();
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::residual(groups, scale, bytes) };
        return ternary_residual_scalar(rest, scale, last);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (groups, rest) = values.as_chunks_mut::<32>();
        let (bytes, last) = digits.as_chunks_mut::<32>();
        // SAFETY: as above.
        unsafe { avx2::residual(groups, scale, bytes) };
        return ternary_residual_scalar(rest, scale, last);
    }
    ternary_residual_scalar(values, scale, digits);
}

#[inline(always)]
fn append(digits: &mut u8, above: bool, below: bool) {
    *digits =
        digits.wrapping_mul(3).wrapping_add(1 + u8::from(above)).wrapping_sub(u8::from(below));
}

fn ternary_residual_scalar(values: &mut [f32], scale: f32, digits: &mut [u8]) {
    let half = scale * 0.5;
    for (x, digit) in values.iter_mut().zip(digits) {
        let (above, below) = (*x > half, *x < -half);
        if above {
            *x -= scale;
        } else if below {
            *x += scale;
        }
        append(digit, above, below);
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn residual(groups: &mut [[f32; 64]], scale: f32, digits: &mut [[u8; 64]]) {
        let (high, low) = (_mm512_set1_ps(scale * 0.5), _mm512_set1_ps(scale * -0.5));
        let scale = _mm512_set1_ps(scale);
        for (group, digits) in groups.iter_mut().zip(digits) {
            let (mut above, mut below) = (0u64, 0u64);
            for quarter in 0..4 {
                let lanes = &mut group[16 * quarter..16 * quarter + 16];
                // SAFETY: the slice holds the sixteen floats that are read, and then written.
                unsafe {
                    let x = _mm512_loadu_ps(lanes.as_ptr());
                    let over = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, high);
                    let under = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, low);
                    let x = _mm512_mask_sub_ps(x, over, x, scale);
                    let x = _mm512_mask_add_ps(x, under, x, scale);
                    _mm512_storeu_ps(lanes.as_mut_ptr(), x);
                    above |= u64::from(over) << (16 * quarter);
                    below |= u64::from(under) << (16 * quarter);
                }
            }
            append(digits, above, below);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn stochastic(
        groups: &[[f32; 64]],
        scale: f32,
        random: &[[u32; 64]],
        digits: &mut [[u8; 64]],
    ) {
        let (fraction, scale) = (_mm512_set1_ps(super::FRACTION), _mm512_set1_ps(scale));
        let positive = _mm512_set1_epi32(i32::MAX);
        for ((group, words), digits) in groups.iter().zip(random).zip(digits) {
            let (mut sent, mut negative) = (0u64, 0u64);
            for quarter in 0..4 {
                let lanes = 16 * quarter..16 * quarter + 16;
                let (x, words) = (&group[lanes.clone()], &words[lanes]);
                // SAFETY: the slices hold the sixteen numbers and words that are read.
                let (x, words) = unsafe {
                    (
                        _mm512_loadu_si512(x.as_ptr().cast()),
                        _mm512_loadu_si512(words.as_ptr().cast()),
                    )
                };
                let chance = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(words));
                let threshold = _mm512_mul_ps(_mm512_mul_ps(chance, fraction), scale);
                let magnitude = _mm512_castsi512_ps(_mm512_and_si512(x, positive));
                let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(magnitude, threshold);
                sent |= u64::from(above) << (16 * quarter);
                negative |= u64::from(_mm512_movepi32_mask(x)) << (16 * quarter);
            }
            append(digits, sent & !negative, sent & negative);
        }
    }

    /// Sixteen bytes at a time, each in a 32-bit lane whose upper half stays 0.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn add<const POWER: u16>(
        digits: &[[u8; 16]],
        values: [f32; 3],
        out: &mut [[f32; 16]],
    ) {
        let [low, middle, high] = values;
        let values = _mm512_setr4_ps(low, middle, high, high);
        let reciprocal = _mm512_set1_epi32(i32::from(super::reciprocal(POWER)));
        let three = _mm512_set1_epi32(3);
        for (digits, out) in digits.iter().zip(out) {
            // SAFETY: the arrays hold the sixteen bytes and floats that are read, and then written.
            unsafe {
                let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(digits.as_ptr().cast()));
                let fraction = _mm512_mullo_epi16(bytes, reciprocal);
                let digit = _mm512_mulhi_epu16(fraction, three);
                let sum = _mm512_permutexvar_ps(digit, values);
                let sum = _mm512_add_ps(_mm512_loadu_ps(out.as_ptr()), sum);
                _mm512_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }

    /// Appends the base-3 digits 2 to bytes above, 0 to bytes below and 1 to the others.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn append(digits: &mut [u8; 64], above: u64, below: u64) {
        let one = _mm512_set1_epi8(1);
        // SAFETY: the array holds the 64 bytes that are read, and then written.
        unsafe {
            let d = _mm512_loadu_si512(digits.as_ptr().cast());
            let d = _mm512_add_epi8(_mm512_add_epi8(d, d), _mm512_add_epi8(d, one));
            let d = _mm512_mask_add_epi8(d, above, d, one);
            let d = _mm512_mask_sub_epi8(d, below, d, one);
            _mm512_storeu_si512(digits.as_mut_ptr().cast(), d);
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn residual(groups: &mut [[f32; 32]], scale: f32, digits: &mut [[u8; 32]]) {
        let one = _mm256_set1_epi8(1);
        for (group, digits) in groups.iter_mut().zip(digits) {
            let (eights, _) = group.as_chunks_mut::<8>();
            let mut signs = [_mm256_setzero_si256(); 4];
            for (lanes, sign) in eights.iter_mut().zip(&mut signs) {
                *sign = subtract(lanes, scale);
            }
            // SAFETY: the array holds the 32 bytes that are read, and then written.
            unsafe {
                let d = _mm256_loadu_si256(digits.as_ptr().cast());
                let d = _mm256_add_epi8(_mm256_add_epi8(d, d), _mm256_add_epi8(d, one));
                let d = _mm256_add_epi8(d, bytes(signs));
                _mm256_storeu_si256(digits.as_mut_ptr().cast(), d);
            }
        }
    }

    /// Subtracts q·scale from eight elements; returns q of each.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn subtract(lanes: &mut [f32; 8], scale: f32) -> __m256i {
        // SAFETY: the array holds the eight floats that are read, and then written.
        unsafe {
            let x = _mm256_loadu_ps(lanes.as_ptr());
            let over = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_set1_ps(scale * 0.5));
            let under = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(scale * -0.5));
            // Zero is subtracted from the others, not added, so −0 stays −0. A signalling NaN
            // becomes quiet.
            let sent = _mm256_or_ps(
                _mm256_and_ps(over, _mm256_set1_ps(scale)),
                _mm256_and_ps(under, _mm256_set1_ps(-scale)),
            );
            _mm256_storeu_ps(lanes.as_mut_ptr(), _mm256_sub_ps(x, sent));
            // A lane that a comparison selects has all bits set: −1.
            _mm256_sub_epi32(_mm256_castps_si256(under), _mm256_castps_si256(over))
        }
    }

    /// Eight bytes at a time, like the AVX-512 version with sixteen.
    #[target_feature(enable = "avx2")]
    pub(super) fn add<const POWER: u16>(
        digits: &[[u8; 8]],
        values: [f32; 3],
        out: &mut [[f32; 8]],
    ) {
        let [low, middle, high] = values;
        let values = _mm256_setr_ps(low, middle, high, high, low, middle, high, high);
        let reciprocal = _mm256_set1_epi32(i32::from(super::reciprocal(POWER)));
        let three = _mm256_set1_epi32(3);
        for (digits, out) in digits.iter().zip(out) {
            // SAFETY: the arrays hold the eight bytes and floats that are read, and then written.
            unsafe {
                let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(digits.as_ptr().cast()));
                let fraction = _mm256_mullo_epi16(bytes, reciprocal);
                let digit = _mm256_mulhi_epu16(fraction, three);
                let sum = _mm256_permutevar8x32_ps(values, digit);
                let sum = _mm256_add_ps(_mm256_loadu_ps(out.as_ptr()), sum);
                _mm256_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }

    /// 32 small numbers as bytes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn bytes([a, b, c, d]: [__m256i; 4]) -> __m256i {
        // Packing works on each half of a register; the fours are put in order afterwards.
        let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
    }
}

/// Quantizes stochastically: q = sign(value) with probability |value| / scale (1 beyond the scale),
/// otherwise 0. Appends the base-3 digit `1 + q` to each byte of `digits`. Element i is compared
/// with the upper 24 bits of `random[i]` as a fraction, times the scale; this product is rounded to
/// a multiple of 2⁻¹⁴⁹ below 2⁻¹²⁶. The scale is not negative. Processes the shortest length.
pub fn stochastic_ternary(values: &[f32], scale: f32, random: &[u32], digits: &mut [u8]) {
    let len = values.len().min(random.len()).min(digits.len());
    let (values, random, digits) = (&values[..len], &random[..len], &mut digits[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let ((groups, rest), (random, words)) = (values.as_chunks(), random.as_chunks());
        let (bytes, last) = digits.as_chunks_mut();
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::stochastic(groups, scale, random, bytes) };
        return by_chance(rest, scale, words, last);
    }
    by_chance(values, scale, random, digits);
}

/// 2⁻²⁴.
const FRACTION: f32 = 1.0 / 16_777_216.0;

kernel! {
    /// The loop of [`stochastic_ternary`].
    fn by_chance(
        values: &[f32],
        scale: f32,
        random: &[u32],
        digits: &mut [u8],
    ) {
        for ((x, word), digit) in values.iter().zip(random).zip(digits) {
            let threshold = (word >> 8) as i32 as f32 * FRACTION * scale;
            let (above, below) = (*x > threshold, *x < -threshold);
            append(digit, above, below);
        }
    }
}

/// Adds `scale·(digit − 1)` to `out`, where digit is the base-3 digit with weight 3^(4 − part) of
/// each byte: the values of fifth `part` of the tensor. Processes the shorter length.
///
/// # Panics
/// If `part` is above 4.
pub fn ternary_add(digits: &[u8], part: usize, scale: f32, out: &mut [f32]) {
    match part {
        0 => add_digit::<81>(digits, scale, out),
        1 => add_digit::<27>(digits, scale, out),
        2 => add_digit::<9>(digits, scale, out),
        3 => add_digit::<3>(digits, scale, out),
        4 => add_digit::<1>(digits, scale, out),
        _ => panic!("a quartic byte has parts 0 to 4, not {part}"),
    }
}

/// The loop of [`ternary_add`] for the digit of weight `POWER`.
fn add_digit<const POWER: u16>(digits: &[u8], scale: f32, out: &mut [f32]) {
    let len = digits.len().min(out.len());
    let (digits, out) = (&digits[..len], &mut out[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let ((digits, rest), (groups, last)) = (digits.as_chunks(), out.as_chunks_mut());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::add::<POWER>(digits, values(scale), groups) };
        return add_digit_scalar::<POWER>(rest, scale, last);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let ((digits, rest), (groups, last)) = (digits.as_chunks(), out.as_chunks_mut());
        // SAFETY: as above.
        unsafe { avx2::add::<POWER>(digits, values(scale), groups) };
        return add_digit_scalar::<POWER>(rest, scale, last);
    }
    add_digit_scalar::<POWER>(digits, scale, out);
}

/// The values of the digits 0, 1 and 2.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn values(scale: f32) -> [f32; 3] {
    [-1.0, 0.0, 1.0].map(|trit| scale * trit)
}

/// The byte times this number is the fraction digit / (3·power) in 16 bits, rounded up by less than
/// its least step 1/243; three times the fraction is the digit. 16-bit multiplications are faster
/// than a division.
const fn reciprocal(power: u16) -> u16 {
    (1u32 << 16).div_ceil(3 * power as u32) as u16
}

fn add_digit_scalar<const POWER: u16>(digits: &[u8], scale: f32, out: &mut [f32]) {
    for (&digit, out) in digits.iter().zip(out) {
        let fraction = u16::from(digit).wrapping_mul(reciprocal(POWER));
        let trit = ((u32::from(fraction) * 3) >> 16) as i16 - 1;
        *out += scale * f32::from(trit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::{same, sweep};
    use alloc::vec::Vec;

    #[test]
    fn trits_by_hand() {
        let mut values = [0.5, 0.500_001, -0.5, -0.75, 1.0, 0.0, -0.0];
        let mut digits = [0, 1, 2, 3, 80, 40, 10];
        ternary_residual(&mut values, 1.0, &mut digits);
        // 3·digit + 1 + q with q = 0, 1, 0, −1, 1, 0, 0.
        assert_eq!(digits, [1, 5, 7, 9, 242, 121, 31]);
        assert_eq!(values[2..6], [-0.5, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn the_smallest_scale_distinguishes_zero() {
        let tiny = f32::from_bits(1);
        let mut values = [tiny, -tiny, 0.0];
        let mut digits = [0; 3];
        ternary_residual(&mut values, tiny, &mut digits);
        assert_eq!(digits, [2, 0, 1]);
        assert_eq!(values, [0.0; 3]);
    }

    #[test]
    fn each_part_finds_its_digit() {
        // 193 = 2·81 + 1·27 + 0·9 + 1·3 + 1.
        let trits: Vec<f32> = (0..5)
            .map(|part| {
                let mut out = [100.0];
                ternary_add(&[193], part, 8.0, &mut out);
                out[0] - 100.0
            })
            .collect();
        assert_eq!(trits, [8.0, 0.0, -8.0, 0.0, 0.0]);
    }

    #[test]
    fn chance_decides_by_the_upper_24_bits() {
        let words = [0, 1 << 31, (1 << 31) - 1, u32::MAX, 0, 0];
        let values = [0.25, 0.5, 0.5, -1.0, 0.0, -0.1];
        let mut digits = [0; 6];
        stochastic_ternary(&values, 1.0, &words, &mut digits);
        assert_eq!(digits, [2, 1, 2, 0, 1, 0]);
    }

    #[test]
    fn sums_are_those_of_a_division() {
        sweep(|x| {
            let digits: Vec<u8> = (0..x.len()).map(|i| (i * 37) as u8).collect();
            for part in 0..5 {
                let (mut out, mut expected) = (x.to_vec(), x.to_vec());
                for (out, &digit) in expected.iter_mut().zip(&digits) {
                    let trit = i32::from(digit) / 3i32.pow(4 - part as u32) % 3 - 1;
                    *out += 0.3 * trit as f32;
                }
                ternary_add(&digits, part, 0.3, &mut out);
                assert!(same(&out, &expected));
            }
        });
    }
}
