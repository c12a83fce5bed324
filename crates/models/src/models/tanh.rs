//! The hyperbolic tangent, with the same bits on every processor and system. The C library's
//! `tanhf` has other bits on aarch64 than on x86-64, and others again in newer versions.
//!
//! The formulas and coefficients are those of fdlibm (Sun Microsystems, 1993), and the bits are
//! those of its x86-64 build in glibc 2.36. All steps are rounded products, sums and quotients
//! without branches, so loops over [`tanh`] get vector instructions.

use std::f32::consts::LOG2_E;

/// tanh x. With t = e^(−2|x|) − 1 it is −t / (t + 2), which keeps the digits of small values; with
/// t = e^(2|x|) − 1 it is 1 − 2 / (t + 2).
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let size = x.abs();
    // tanh 10 rounds to 1. Unlike `min`, the comparison keeps NaN.
    let size = if size > 10.0 { 10.0 } else { size };
    let t = exp_m1(if size < 1.0 { -2.0 } else { 2.0 } * size);
    // A second test of the size would make compilers compute t twice.
    let (from, dividend) = if t < 0.0 { (0.0, t) } else { (1.0, 2.0) };
    (from - dividend / (t + 2.0)).copysign(x)
}

/// eˣ − 1 for −2 ≤ x ≤ 20.
///
/// eˣ = 2ⁿ·eʳ with n = round(x / ln 2). With R = 6/r · ((eʳ + 1) / (eʳ − 1) − 2/r), which is nearly
/// a polynomial of r², and t = 3 − R·r/2, it is eʳ − 1 = r + r²/2 − r³/2 · (R − t) / (6 − r·t).
#[inline(always)]
fn exp_m1(x: f32) -> f32 {
    /// Adding it rounds to a whole number in the lowest bits; 127 is the exponent's bias.
    const ROUND: f32 = (3 << 22) as f32 + 127.0;
    /// ln 2 in two parts; the first has few digits, so its products are exact.
    const LN_2: [f32; 2] = [0.693_138_1, 9.058_001e-6];
    /// The coefficients of R, a polynomial of r²/2, but the highest.
    const R: [f32; 5] = [4.008_217_7e-6, -7.936_507_6e-5, 1.587_301_6e-3, -3.333_333_5e-2, 1.0];
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let power = f32::from_bits(shifted.to_bits() << 23);
    let (high, low) = (x - n * LN_2[0], n * LN_2[1]);
    let r = high - low;
    let lost = high - r - low;
    let half_square = r * (0.5 * r);
    let ratio = R.into_iter().fold(-2.010_992_1e-7, |sum, term| sum * half_square + term);
    let t = 3.0 - ratio * (0.5 * r);
    let quotient = half_square * ((ratio - t) / (6.0 - r * t));
    let part = r - (r * (quotient - lost) - lost - half_square);
    if n < -1.0 { (1.0 + part) * power - 1.0 } else { part * power + (power - 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every so-many-th of the positive numbers that are not NaN.
    const STRIDE: usize = 10_007;

    fn sizes() -> impl Iterator<Item = f32> {
        (0..=f32::INFINITY.to_bits()).step_by(STRIDE).map(f32::from_bits)
    }

    #[test]
    fn errors_are_below_2_2_units_in_the_last_place() {
        for x in sizes() {
            let (found, expected) = (f64::from(tanh(x)), f64::from(x).tanh());
            let unit = f64::from((expected as f32).next_up()) - f64::from(expected as f32);
            assert!((found - expected).abs() < 2.2 * unit, "tanh({x}) = {found}, not {expected}");
        }
    }

    #[test]
    fn bits_are_those_of_fdlibm_as_glibc_2_36_has_it_on_x86_64() {
        // Each way of exp_m1. All but those of 0.1 and 9 are one unit off the nearest number.
        for (x, bits) in [
            (0.002, 0x3b03_1263),
            (0.1, 0x3dcc_1ebc),
            (0.18, 0x3e36_5ad6),
            (0.53, 0x3ef8_83df),
            (0.882, 0x3f35_1977),
            (1.024, 0x3f45_806c),
            (1.376, 0x3f61_4b1e),
            (9.0, 0x3f7f_ffff),
        ] {
            assert_eq!(tanh(x).to_bits(), bits, "tanh({x})");
        }
        // An FNV-1a hash of words.
        let hash = |sum: u32, x| (sum ^ tanh(x).to_bits()).wrapping_mul(16_777_619);
        assert_eq!(sizes().fold(0, hash), 0x7b58_d13b);
    }

    #[test]
    fn signs_and_special_values_are_kept() {
        for x in sizes() {
            assert_eq!(tanh(-x).to_bits(), (-tanh(x)).to_bits(), "tanh(-{x})");
        }
        let special = [0.0, f32::from_bits(1), f32::MIN_POSITIVE, 1e-30];
        assert_eq!(special.map(tanh), special);
        assert_eq!([10.0, 11.0, f32::MAX, f32::INFINITY].map(tanh), [1.0; 4]);
        assert!(tanh(f32::NAN).is_nan() && tanh(-f32::NAN).is_nan());
    }
}
