//! Conversion between `f32` and the bit patterns of 16-bit floats.
//!
//! Conversion to 16 bits rounds to nearest, ties to even, and saturates: a value that would become
//! infinity becomes the largest finite number of its sign. Conversion from 16 bits is exact.

use super::vectorised;

/// The largest finite binary16.
const F16_MAX: f32 = 65504.0;
/// The smallest normal binary16.
const F16_LEAST_NORMAL: f32 = 6.103_515_6e-5;
/// The largest finite bfloat16.
const BF16_MAX: u32 = 0x7f7f;

vectorised! {
    /// Converts binary16 patterns to `f32`, up to the shorter length.
    pub fn f16_to_f32 / f16_to_f32_scalar(patterns: &[u16], out: &mut [f32]) {
        for (&pattern, out) in patterns.iter().zip(out) {
            let bits = u32::from(pattern);
            let sign = (bits & 0x8000) << 16;
            let (exponent, mantissa) = (bits & 0x7c00, bits & 0x03ff);
            let magnitude = if exponent == 0 {
                // Subnormal: the mantissa counts units of 2^-24, exactly.
                (mantissa as i32 as f32 * (1.0 / 16_777_216.0)).to_bits()
            } else if exponent == 0x7c00 {
                0x7f80_0000 | mantissa << 13
            } else {
                ((bits & 0x7fff) << 13) + (112 << 23)
            };
            *out = f32::from_bits(sign | magnitude);
        }
    }
}

vectorised! {
    /// Converts `f32` values to binary16 patterns, up to the shorter length.
    pub fn f32_to_f16 / f32_to_f16_scalar(values: &[f32], out: &mut [u16]) {
        for (x, out) in values.iter().zip(out) {
            let bits = x.to_bits();
            let magnitude = f32::from_bits(bits & 0x7fff_ffff);
            let magnitude = if magnitude < F16_MAX { magnitude } else { F16_MAX };
            // Below the normal range, adding 0.5 rounds to units of 2^-24, f32's spacing there.
            let subnormal = (magnitude + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
            let wide = magnitude.to_bits();
            let nearest_even = 0x0fff + (wide >> 13 & 1);
            let normal = wide.wrapping_add(nearest_even).wrapping_sub(112 << 23) >> 13;
            let narrow = if magnitude < F16_LEAST_NORMAL { subnormal } else { normal };
            *out = (bits >> 16 & 0x8000 | narrow) as u16;
        }
    }
}

vectorised! {
    /// Converts bfloat16 patterns to `f32`, up to the shorter length.
    pub fn bf16_to_f32 / bf16_to_f32_scalar(patterns: &[u16], out: &mut [f32]) {
        for (&pattern, out) in patterns.iter().zip(out) {
            *out = f32::from_bits(u32::from(pattern) << 16);
        }
    }
}

vectorised! {
    /// Converts `f32` values to bfloat16 patterns, up to the shorter length.
    pub fn f32_to_bf16 / f32_to_bf16_scalar(values: &[f32], out: &mut [u16]) {
        for (x, out) in values.iter().zip(out) {
            let bits = x.to_bits();
            let magnitude = bits & 0x7fff_ffff;
            let rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
            *out = (bits >> 16 & 0x8000 | rounded.min(BF16_MAX)) as u16;
        }
    }
}

#[cfg(test)]
mod tests {
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
