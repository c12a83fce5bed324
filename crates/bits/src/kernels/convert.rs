//! Conversion between `f32` and the bit patterns of 16-bit floats.
//!
//! Conversion to 16 bits rounds to nearest, ties to even, and saturates: a value that would become
//! infinity becomes the largest finite number of its sign. Conversion from 16 bits is exact.

use super::kernel;

/// Converts groups of eight elements with the processor's instructions for binary16, if it has
/// them. Returns the remaining elements.
macro_rules! by_instruction {
    ($instructions:ident::$name:ident($from:expr, $to:expr $(, $more:expr)?)) => {{
        let len = $from.len().min($to.len());
        let (from, to) = (&$from[..len], &mut $to[..len]);
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        let done = if has_f16c() {
            let ((from, _), (to, _)) = (from.as_chunks(), to.as_chunks_mut());
            // SAFETY: the processor has the instructions.
            unsafe { $instructions::$name(from, to $(, $more)?) };
            len / 8 * 8
        } else {
            0
        };
        #[cfg(not(all(target_arch = "x86_64", feature = "std")))]
        let done = 0;
        (&from[done..], &mut to[done..])
    }};
}

/// Whether the instructions for binary16 are used.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(super) fn has_f16c() -> bool {
    super::level::has_avx2() && std::is_x86_feature_detected!("f16c")
}

/// The largest finite binary16.
pub(super) const F16_MAX: f32 = 65504.0;
/// The smallest normal binary16.
const F16_MIN_NORMAL: f32 = 6.103_515_6e-5;
/// The largest finite bfloat16.
pub(super) const BF16_MAX: u32 = 0x7f7f;

/// Converts binary16 patterns to `f32`, up to the shorter length. NaN becomes a quiet NaN.
pub fn f16_to_f32(patterns: &[u16], out: &mut [f32]) {
    let (patterns, out) = by_instruction!(f16c::widen(patterns, out));
    for (&pattern, out) in patterns.iter().zip(out) {
        *out = f16_value(pattern);
    }
}

/// Adds `weight` times the numbers of little-endian binary16 patterns to `out`, up to the shorter
/// length. Moves 10 bytes per element.
pub fn f16_add(patterns: &[u8], weight: f32, out: &mut [f32]) {
    let (patterns, _) = patterns.as_chunks::<2>();
    let (patterns, out) = by_instruction!(f16c::add(patterns, out, weight));
    for (bytes, out) in patterns.iter().zip(out) {
        *out += weight * f16_value(u16::from_le_bytes(*bytes));
    }
}

/// Converts `f32` values to binary16 patterns, up to the shorter length.
pub fn f32_to_f16(values: &[f32], out: &mut [u16]) {
    let (values, out) = by_instruction!(f16c::narrow(values, out));
    for (x, out) in values.iter().zip(out) {
        *out = f16_pattern(*x);
    }
}

kernel! {
    /// Converts bfloat16 patterns to `f32`, up to the shorter length.
    pub fn bf16_to_f32(patterns: &[u16], out: &mut [f32]) {
        for (&pattern, out) in patterns.iter().zip(out) {
            *out = bf16_value(pattern);
        }
    }
}

kernel! {
    /// Adds `weight` times the numbers of little-endian bfloat16 patterns to `out`, up to the
    /// shorter length. Moves 10 bytes per element.
    pub fn bf16_add(patterns: &[u8], weight: f32, out: &mut [f32]) {
        for (bytes, out) in patterns.as_chunks::<2>().0.iter().zip(out) {
            *out += weight * bf16_value(u16::from_le_bytes(*bytes));
        }
    }
}

kernel! {
    /// Converts `f32` values to bfloat16 patterns, up to the shorter length.
    pub fn f32_to_bf16(values: &[f32], out: &mut [u16]) {
        for (x, out) in values.iter().zip(out) {
            *out = bf16_pattern(*x);
        }
    }
}

kernel! {
    /// Adds `weight` times little-endian binary32 numbers to `out`, up to the shorter length. Moves
    /// 12 bytes per element.
    pub fn f32_add(numbers: &[u8], weight: f32, out: &mut [f32]) {
        for (bytes, out) in numbers.as_chunks::<4>().0.iter().zip(out) {
            *out += weight * f32::from_le_bytes(*bytes);
        }
    }
}

/// The pattern of the bfloat16 number nearest to a value.
#[inline(always)]
pub(super) fn bf16_pattern(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    (bits >> 16 & 0x8000 | rounded.min(BF16_MAX)) as u16
}

/// The pattern of the binary16 number nearest to a value.
pub(super) fn f16_pattern(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    let magnitude = if magnitude < F16_MAX { magnitude } else { F16_MAX };
    // Below the normal range, adding 0.5 rounds to units of 2^-24, f32's spacing there.
    let subnormal = (magnitude + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let wide = magnitude.to_bits();
    let nearest_even = 0x0fff + (wide >> 13 & 1);
    let normal = wide.wrapping_add(nearest_even).wrapping_sub(112 << 23) >> 13;
    let narrow = if magnitude < F16_MIN_NORMAL { subnormal } else { normal };
    (bits >> 16 & 0x8000 | narrow) as u16
}

/// The number of a binary16 pattern.
fn f16_value(pattern: u16) -> f32 {
    let bits = u32::from(pattern);
    let sign = (bits & 0x8000) << 16;
    let (exponent, mantissa) = (bits & 0x7c00, bits & 0x03ff);
    let magnitude = if exponent == 0 {
        // Subnormal: the mantissa counts units of 2^-24, exactly.
        (mantissa as i32 as f32 * (1.0 / 16_777_216.0)).to_bits()
    } else if exponent == 0x7c00 {
        0x7f80_0000 | mantissa << 13 | u32::from(mantissa != 0) << 22
    } else {
        ((bits & 0x7fff) << 13) + (112 << 23)
    };
    f32::from_bits(sign | magnitude)
}

/// The number of a bfloat16 pattern.
#[inline(always)]
fn bf16_value(pattern: u16) -> f32 {
    f32::from_bits(u32::from(pattern) << 16)
}

/// The instructions for binary16: they round to nearest even, and give subnormal numbers.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(super) mod f16c {
    use core::arch::x86_64::*;

    use super::F16_MAX;

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn widen(patterns: &[[u16; 8]], out: &mut [[f32; 8]]) {
        for (patterns, out) in patterns.iter().zip(out) {
            // SAFETY: the arrays hold the eight patterns that are read and the eight numbers that
            // are written.
            unsafe {
                let values = _mm256_cvtph_ps(_mm_loadu_si128(patterns.as_ptr().cast()));
                _mm256_storeu_ps(out.as_mut_ptr(), values);
            }
        }
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn add(patterns: &[[[u8; 2]; 8]], out: &mut [[f32; 8]], weight: f32) {
        let weight = _mm256_set1_ps(weight);
        for (patterns, out) in patterns.iter().zip(out) {
            // SAFETY: as above; the numbers are read, too.
            unsafe {
                let values = _mm256_cvtph_ps(_mm_loadu_si128(patterns.as_ptr().cast()));
                let sum = _mm256_loadu_ps(out.as_ptr());
                let sum = _mm256_add_ps(sum, _mm256_mul_ps(weight, values));
                _mm256_storeu_ps(out.as_mut_ptr(), sum);
            }
        }
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn narrow(values: &[[f32; 8]], out: &mut [[u16; 8]]) {
        for (values, out) in values.iter().zip(out) {
            // SAFETY: the arrays hold the eight numbers that are read and the eight patterns that
            // are written.
            unsafe {
                let patterns = narrow_eight(_mm256_loadu_ps(values.as_ptr()));
                _mm_storeu_si128(out.as_mut_ptr().cast(), patterns);
            }
        }
    }

    /// The patterns of eight numbers, which saturate.
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    pub(in crate::kernels) fn narrow_eight(x: __m256) -> __m128i {
        let (sign, most) = (_mm256_set1_ps(-0.0), _mm256_set1_ps(F16_MAX));
        // The minimum with NaN is its second operand.
        let magnitude = _mm256_min_ps(_mm256_andnot_ps(sign, x), most);
        let x = _mm256_or_ps(magnitude, _mm256_and_ps(sign, x));
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    fn to_f16(x: f32) -> u16 {
        let mut out = [0];
        f32_to_f16(&[x], &mut out);
        out[0]
    }

    fn to_bf16(x: f32) -> u16 {
        let mut out = [0];
        f32_to_bf16(&[x], &mut out);
        out[0]
    }

    #[test]
    fn binary16_by_hand() {
        let least = 2f32.powi(-24);
        for (x, pattern) in [
            (0.0, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65519.9, 0x7bff),
            (1e6, 0x7bff),
            (f32::MIN, 0xfbff),
            (least, 0x0001),
            (0.5 * least, 0x0000),
            (0.500_001 * least, 0x0001),
            (1.5 * least, 0x0002),
            (2f32.powi(-14), 0x0400),
            (2f32.powi(-14) - 0.5 * least, 0x0400),
            (1.0 + 2f32.powi(-11), 0x3c00),
            (1.0 + 3.0 * 2f32.powi(-11), 0x3c02),
            (1e-40, 0x0000),
        ] {
            assert_eq!(to_f16(x), pattern, "{x}");
        }
    }

    #[test]
    fn every_finite_binary16_returns() {
        for pattern in (0..=u16::MAX).filter(|p| p & 0x7c00 != 0x7c00) {
            let mut x = [0.0];
            f16_to_f32(&[pattern], &mut x);
            assert_eq!(to_f16(x[0]), pattern);
            assert!(x[0].abs() <= F16_MAX);
        }
        let mut special = [0.0; 3];
        f16_to_f32(&[0x7c00, 0xfc00, 0x7e00], &mut special);
        assert_eq!(special[..2], [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(special[2].is_nan());
    }

    #[test]
    fn many_binary16_numbers_are_converted_as_one_is() {
        let patterns: Vec<u16> = (0..=u16::MAX).collect();
        let mut values = vec![0.0; patterns.len()];
        f16_to_f32(&patterns, &mut values);
        for (&pattern, value) in patterns.iter().zip(&values) {
            assert_eq!(value.to_bits(), f16_value(pattern).to_bits(), "{pattern:#x}");
        }
        // Each number, the point halfway to the next, and its neighbours.
        for step in [0, 0x0fff, 0x1000, 0x1001] {
            let near: Vec<f32> =
                values.iter().map(|x| f32::from_bits(x.to_bits().wrapping_add(step))).collect();
            let mut narrow = vec![0; near.len()];
            f32_to_f16(&near, &mut narrow);
            for (x, pattern) in near.iter().zip(narrow) {
                assert_eq!(pattern, f16_pattern(*x), "{x:e}");
            }
        }
    }

    #[test]
    fn weighted_numbers_are_added() {
        let start = [1.0, 10.0, 100.0];
        // 1, -2 and 2^-24, twice each; the fourth has no place.
        let halves = [0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0x00, 0x3c];
        let mut sum = start;
        f16_add(&halves, 0.5, &mut sum);
        assert_eq!(sum, [1.5, 9.0, 100.0 + 2f32.powi(-25)]);
        let mut sum = start;
        bf16_add(&[0x80, 0x3f, 0x00, 0xc0], 0.5, &mut sum);
        assert_eq!(sum, [1.5, 9.0, 100.0]);
        let mut sum = start;
        f32_add(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], -1.0, &mut sum);
        assert_eq!(sum, [0.0, 12.0, 100.0]);
    }

    #[test]
    fn bfloat16_by_hand() {
        for (x, pattern) in [
            (1.0, 0x3f80),
            (-0.0, 0x8000),
            (1.0 + 2f32.powi(-8), 0x3f80),
            (1.0 + 3.0 * 2f32.powi(-8), 0x3f82),
            (f32::MAX, 0x7f7f),
            (f32::MIN, 0xff7f),
            (f32::from_bits(0x0000_8000), 0x0000),
            (f32::from_bits(0x0001_8000), 0x0002),
        ] {
            assert_eq!(to_bf16(x), pattern, "{x}");
        }
    }
}
