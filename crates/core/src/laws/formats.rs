//! The 16-bit formats by definition, one number at a time, as a reference for conversions.

use std::sync::OnceLock;

use crate::Dtype;

/// The bits of the exponent and of the mantissa.
fn widths(dtype: Dtype) -> (i32, i32) {
    match dtype {
        Dtype::F16 => (5, 10),
        Dtype::Bf16 => (8, 7),
        Dtype::F32 => panic!("f32 is not a 16-bit format"),
    }
}

/// The number of a pattern of 16 bits.
pub(super) fn value(dtype: Dtype, pattern: u16) -> f32 {
    let (exponent_bits, mantissa_bits) = widths(dtype);
    let exponent = i32::from(pattern & 0x7fff) >> mantissa_bits;
    let mantissa = f64::from(pattern % (1 << mantissa_bits)) / f64::from(1 << mantissa_bits);
    let (most, bias) = ((1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1);
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(1 - bias),
        _ if exponent < most => (1.0 + mantissa) * 2f64.powi(exponent - bias),
        _ if mantissa == 0.0 => f64::INFINITY,
        _ => f64::NAN,
    };
    (if pattern >> 15 == 0 { magnitude } else { -magnitude }) as f32
}

/// Zero, the positive numbers and infinity, in the order of their patterns, which is also their
/// numeric order.
fn positives(dtype: Dtype) -> &'static [f64] {
    static F16: OnceLock<Vec<f64>> = OnceLock::new();
    static BF16: OnceLock<Vec<f64>> = OnceLock::new();
    let (exponent_bits, mantissa_bits) = widths(dtype);
    let infinity: u16 = ((1 << exponent_bits) - 1) << mantissa_bits;
    let table = if dtype == Dtype::F16 { &F16 } else { &BF16 };
    table.get_or_init(|| (0..=infinity).map(|pattern| value(dtype, pattern).into()).collect())
}

/// The 16-bit pattern of the nearest number: the even one of two; a finite one for a finite number.
pub(super) fn nearest(dtype: Dtype, x: f32) -> u16 {
    let (positives, target) = (positives(dtype), f64::from(x.abs()));
    let sign = u16::from(x.is_sign_negative()) << 15;
    let infinity = positives.len() - 1;
    if x.is_nan() {
        return sign | infinity as u16 | 1;
    }
    let above = positives.partition_point(|&value| value < target);
    if positives[above] == target {
        return sign | above as u16;
    }
    let (down, up) = (target - positives[above - 1], positives[above] - target);
    let is_lower = down < up || down == up && above % 2 == 1;
    sign | (if is_lower { above - 1 } else { above }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        for (dtype, x, pattern) in [
            (Dtype::F16, 1.0, 0x3c00),
            (Dtype::F16, -2.5, 0xc100),
            (Dtype::F16, 65504.0, 0x7bff),
            (Dtype::F16, 2f32.powi(-24), 1),
            (Dtype::F16, f32::INFINITY, 0x7c00),
            (Dtype::Bf16, 1.0, 0x3f80),
            (Dtype::Bf16, -0.0, 0x8000),
            (Dtype::Bf16, f32::from_bits(0x0001_0000), 1),
        ] {
            assert_eq!(value(dtype, pattern).to_bits(), x.to_bits());
            assert_eq!(nearest(dtype, x), pattern);
        }
        // Halfway between two, and beyond the largest.
        assert_eq!(nearest(Dtype::F16, 1.0 + 2f32.powi(-11)), 0x3c00);
        assert_eq!(nearest(Dtype::F16, 1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
        assert_eq!(nearest(Dtype::F16, -1e9), 0xfbff);
        assert!(value(Dtype::Bf16, nearest(Dtype::Bf16, f32::NAN)).is_nan());
    }
}
