//! Stochastic rounding to powers of two; the symbol is the exponent.
//!
//! A positive `f32` lies between two powers of two, at the fraction m·2^−23 of their distance, with
//! m its lowest 23 bits. This also holds for subnormals, between 0 and the smallest normal number,
//! so rounding is an integer addition to the pattern.

use super::kernel;

/// The exponent of the largest power of two.
const LARGEST: u32 = 254;
const MANTISSA: u32 = 23;
const SIGN: u32 = 1 << 31;

kernel! {
    /// Rounds each value to a power of two or zero; the upper 23 bits of a random word decide. It
    /// rounds away from zero with the probability that makes the value the expectation. A value
    /// that would become 2^128 becomes 2^127. Writes the rounded values, with zeros positive, and
    /// their biased exponents, and leaves the rounding errors in `values`. Processes the shortest
    /// length.
    pub fn natural_residual(
        values: &mut [f32],
        random: &[u32],
        rounded: &mut [f32],
        exponents: &mut [u16],
    ) {
        let rounded = rounded.iter_mut().zip(exponents);
        for ((x, word), (rounded, exponent)) in values.iter_mut().zip(random).zip(rounded) {
            let magnitude = x.to_bits() & !SIGN;
            let up = (word >> (32 - MANTISSA)) < (magnitude & ((1 << MANTISSA) - 1));
            let power = ((magnitude >> MANTISSA) + u32::from(up)).min(LARGEST);
            let sign = if power == 0 { 0 } else { x.to_bits() & SIGN };
            *rounded = f32::from_bits(power << MANTISSA | sign);
            *x -= *rounded;
            *exponent = power as u16;
        }
    }
}

/// Adds `weight` times the powers of two with these biased exponents, at most 254; a value is
/// negative if its sign bit is 0. Processes the shorter length.
///
/// # Panics
/// If there are too few signs.
pub fn natural_add(exponents: &[u16], signs: &[u8], weight: f32, out: &mut [f32]) {
    let len = exponents.len().min(out.len());
    let (exponents, out) = (&exponents[..len], &mut out[..len]);
    let signs = &signs[..len.div_ceil(8)];
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (whole, last) = (exponents.as_chunks::<16>(), out.as_chunks_mut::<16>());
        let (packed, rest) = signs.split_at(2 * whole.0.len());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::add(whole.0, packed.as_chunks().0, weight, last.0) };
        return natural_add_scalar(whole.1, rest, weight, last.1);
    } else if super::level::has_avx2() {
        let (whole, last) = (exponents.as_chunks::<8>(), out.as_chunks_mut::<8>());
        let (packed, rest) = signs.split_at(whole.0.len());
        // SAFETY: as above.
        unsafe { avx2::add(whole.0, packed, weight, last.0) };
        return natural_add_scalar(whole.1, rest, weight, last.1);
    }
    natural_add_scalar(exponents, signs, weight, out);
}

fn natural_add_scalar(exponents: &[u16], signs: &[u8], weight: f32, out: &mut [f32]) {
    for (at, (&exponent, out)) in exponents.iter().zip(out).enumerate() {
        let sign = (!u32::from(signs[at / 8]) >> (at % 8)) << 31;
        *out += weight * f32::from_bits(u32::from(exponent) << MANTISSA | sign);
    }
}

/// Whether an element has the exponent 0 and a negative sign (a 0 bit). Looks only at whole groups
/// of eight elements, up to the shorter length; the caller checks a shorter last group.
pub fn negative_zeros(exponents: &[u16], signs: &[u8]) -> bool {
    let eights = (exponents.len() / 8).min(signs.len());
    let (exponents, signs) = (&exponents[..8 * eights], &signs[..eights]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (whole, packed) = (exponents.as_chunks::<32>(), signs.as_chunks::<4>());
        // SAFETY: the processor has the features the function is compiled for.
        let found = unsafe { avx512::negative_zeros(whole.0, packed.0) };
        return found | negative_zeros_scalar(whole.1, packed.1);
    } else if super::level::has_avx2() {
        let (whole, packed) = (exponents.as_chunks::<16>(), signs.as_chunks::<2>());
        // SAFETY: as above.
        let found = unsafe { avx2::negative_zeros(whole.0, packed.0) };
        return found | negative_zeros_scalar(whole.1, packed.1);
    }
    negative_zeros_scalar(exponents, signs)
}

fn negative_zeros_scalar(exponents: &[u16], signs: &[u8]) -> bool {
    let negative = |at: usize| signs[at / 8] >> (at % 8) & 1 == 0;
    exponents.iter().enumerate().any(|(at, &exponent)| exponent == 0 && negative(at))
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn add(
        exponents: &[[u16; 16]],
        signs: &[[u8; 2]],
        weight: f32,
        out: &mut [[f32; 16]],
    ) {
        let (weight, negative) = (_mm512_set1_ps(weight), _mm512_set1_epi32(i32::MIN));
        for ((exponents, signs), out) in exponents.iter().zip(signs).zip(out) {
            // SAFETY: the arrays hold the sixteen exponents and floats that are read, and then
            // written.
            unsafe {
                let power = _mm512_cvtepu16_epi32(_mm256_loadu_si256(exponents.as_ptr().cast()));
                let power = _mm512_slli_epi32::<23>(power);
                let minus = !u16::from_le_bytes(*signs);
                let power = _mm512_mask_or_epi32(power, minus, power, negative);
                let product = _mm512_mul_ps(weight, _mm512_castsi512_ps(power));
                let sum = _mm512_add_ps(_mm512_loadu_ps(out.as_ptr()), product);
                _mm512_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn negative_zeros(exponents: &[[u16; 32]], signs: &[[u8; 4]]) -> bool {
        let mut found = 0;
        for (exponents, signs) in exponents.iter().zip(signs) {
            // SAFETY: the array holds the 32 exponents that are read.
            let exponents = unsafe { _mm512_loadu_si512(exponents.as_ptr().cast()) };
            let zeros = _mm512_cmpeq_epi16_mask(exponents, _mm512_setzero_si512());
            found |= zeros & !u32::from_le_bytes(*signs);
        }
        found != 0
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn add(exponents: &[[u16; 8]], signs: &[u8], weight: f32, out: &mut [[f32; 8]]) {
        let weight = _mm256_set1_ps(weight);
        // Moves the sign bit of each lane to the top.
        let up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
        let top = _mm256_set1_epi32(i32::MIN);
        for ((exponents, &signs), out) in exponents.iter().zip(signs).zip(out) {
            let signs = _mm256_sllv_epi32(_mm256_set1_epi32(!i32::from(signs)), up);
            // SAFETY: the arrays hold the eight exponents and floats that are read, and then
            // written.
            unsafe {
                let power = _mm256_cvtepu16_epi32(_mm_loadu_si128(exponents.as_ptr().cast()));
                let power = _mm256_slli_epi32::<23>(power);
                let power = _mm256_or_si256(power, _mm256_and_si256(signs, top));
                let product = _mm256_mul_ps(weight, _mm256_castsi256_ps(power));
                let sum = _mm256_add_ps(_mm256_loadu_ps(out.as_ptr()), product);
                _mm256_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn negative_zeros(exponents: &[[u16; 16]], signs: &[[u8; 2]]) -> bool {
        let zero = _mm256_setzero_si256();
        let lanes = _mm256_setr_epi16(
            1,
            1 << 1,
            1 << 2,
            1 << 3,
            1 << 4,
            1 << 5,
            1 << 6,
            1 << 7,
            1 << 8,
            1 << 9,
            1 << 10,
            1 << 11,
            1 << 12,
            1 << 13,
            1 << 14,
            i16::MIN,
        );
        let mut found = zero;
        for (exponents, signs) in exponents.iter().zip(signs) {
            // SAFETY: the array holds the sixteen exponents that are read.
            let exponents = unsafe { _mm256_loadu_si256(exponents.as_ptr().cast()) };
            let signs = _mm256_and_si256(_mm256_set1_epi16(i16::from_le_bytes(*signs)), lanes);
            let negative = _mm256_cmpeq_epi16(signs, zero);
            let both = _mm256_and_si256(negative, _mm256_cmpeq_epi16(exponents, zero));
            found = _mm256_or_si256(found, both);
        }
        _mm256_testz_si256(found, found) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::same;

    #[test]
    fn a_negative_zero_is_found() {
        let exponents = [0, 5, 0, 7, 1, 1, 1, 1, 9, 0];
        assert!(!negative_zeros(&exponents, &[0b0000_0101, 0]));
        assert!(negative_zeros(&exponents, &[0b1111_1011, 0]));
        // The last two do not fill a byte.
        assert!(!negative_zeros(&exponents, &[0xff, 0]));
    }

    #[test]
    fn powers_by_hand() {
        // 3 is halfway between 2 and 4; the words are just below the middle, at it, and at the top.
        let words = [0x7fff_ffff, 0x8000_0000, u32::MAX, 0, 0, 0, 0x7fff_fdff];
        let mut values = [3.0, -3.0, 1.0, 0.0, -0.0, f32::MAX, -f32::MIN_POSITIVE / 2.0];
        let (mut rounded, mut exponents) = ([9.0; 7], [9; 7]);
        natural_residual(&mut values, &words, &mut rounded, &mut exponents);
        let top = 2f32.powi(127);
        assert!(same(&rounded, &[4.0, -2.0, 1.0, 0.0, 0.0, top, -f32::MIN_POSITIVE]));
        assert_eq!(exponents, [129, 128, 127, 0, 0, 254, 1]);
        assert_eq!(values[..2], [-1.0, -1.0]);
        assert_eq!(values[5..], [f32::MAX - top, f32::MIN_POSITIVE / 2.0]);
        let mut out = [1.0; 7];
        natural_add(&exponents, &[0b0111_1101], 0.5, &mut out);
        assert_eq!(out[..5], [3.0, 0.0, 1.5, 1.0, 1.0]);
        assert_eq!(out[5..], [1.0 + top / 2.0, 1.0 + f32::MIN_POSITIVE / 2.0]);
    }
}
