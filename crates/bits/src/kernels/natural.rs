//! Stochastic rounding to powers of two; the symbol is the exponent.
//!
//! A positive `f32` lies between two powers of two, at the fraction m·2^−23 of their distance, where m
//! is its lowest 23 bits. This also holds for subnormals, between 0 and the smallest normal number, so
//! rounding is an integer addition to the pattern.

use super::vectorised;

/// The exponent of the largest power of two.
const LARGEST: u32 = 254;
const MANTISSA: u32 = 23;
const SIGN: u32 = 1 << 31;

vectorised! {
    /// Rounds each value to a power of two or zero, away from zero with the probability that makes the
    /// value the expectation; the upper 23 bits of a random word decide. A value that would become 2^128
    /// becomes 2^127. Writes the rounded values, with zeros positive, and their biased exponents, and
    /// leaves the rounding errors in `values`. Processes the shortest length.
    pub fn natural_residual / natural_residual_scalar(
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

vectorised! {
    /// Adds `weight` times the powers of two with these biased exponents, at most 254; a value is negative
    /// if its sign bit is 0. Processes the shorter length.
    ///
    /// # Panics
    /// If there are too few signs.
    pub fn natural_add / natural_add_scalar(
        exponents: &[u16],
        signs: &[u8],
        weight: f32,
        out: &mut [f32],
    ) {
        let power = |exponent: u16, signs: u8, place: usize| {
            let sign = (!u32::from(signs) >> place) << 31;
            weight * f32::from_bits(u32::from(exponent) << MANTISSA | sign)
        };
        let (eights, rest) = exponents.as_chunks::<8>();
        let (outs, last) = out.as_chunks_mut::<8>();
        for ((exponents, out), &signs) in eights.iter().zip(outs).zip(signs) {
            for place in 0..8 {
                out[place] += power(exponents[place], signs, place);
            }
        }
        for (place, (&exponent, out)) in rest.iter().zip(last).enumerate() {
            *out += power(exponent, signs[eights.len()], place);
        }
    }
}

vectorised! {
    /// Whether an element has the exponent 0 and a negative sign, which is a bit that is 0. Looks at whole groups of eight
    /// elements only, up to the shorter length; the caller checks a shorter last group.
    pub fn negative_zeros / negative_zeros_scalar(exponents: &[u16], signs: &[u8]) -> bool {
        let mut found = [0; 8];
        for (exponents, &signs) in exponents.as_chunks::<8>().0.iter().zip(signs) {
            for (at, (found, &exponent)) in found.iter_mut().zip(exponents).enumerate() {
                *found |= u32::from(exponent == 0) & !(u32::from(signs) >> at);
            }
        }
        found.iter().any(|found| found & 1 == 1)
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
