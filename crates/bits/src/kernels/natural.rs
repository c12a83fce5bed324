//! Stochastic rounding to powers of two; the symbol is the exponent.
//!
//! A positive `f32` lies between two powers of two, at the fraction m·2^−23 of their distance, with
//! m its lowest 23 bits. This also holds for subnormals, between 0 and the smallest normal number,
//! so rounding is an integer addition to the pattern.

use fearless_simd::prelude::*;

use super::{cases, kernel};

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

kernel! {
    /// Adds `weight` times the powers of two with these biased exponents, at most 254; a value is
    /// negative if its sign bit is 0. Processes the shorter length.
    ///
    /// # Panics
    /// If there are too few signs.
    pub fn natural_add(exponents: &[u16], signs: &[u8], weight: f32, out: &mut [f32]) {
        let len = exponents.len().min(out.len());
        let (exponents, last) = exponents[..len].as_chunks::<32>();
        let (groups, rest) = out[..len].as_chunks_mut::<32>();
        let (packed, end) = signs[..len.div_ceil(8)].split_at(4 * groups.len());
        let words = packed.as_chunks::<4>().0;
        for ((exponents, word), out) in exponents.iter().zip(words).zip(groups) {
            add(exponents, u32::from_le_bytes(*word), weight, out);
        }
        let mut word = [0; 4];
        word[..end.len()].copy_from_slice(end);
        add(last, u32::from_le_bytes(word), weight, rest);
    }
}

/// Adds at most 32 powers of two, with a bit for each sign.
#[inline(always)]
fn add(exponents: &[u16], signs: u32, weight: f32, out: &mut [f32]) {
    for (at, (&exponent, out)) in exponents.iter().zip(out).enumerate() {
        let sign = (!signs >> at) << 31;
        *out += weight * f32::from_bits(u32::from(exponent) << MANTISSA | sign);
    }
}

kernel! {
    /// Whether an element has the exponent 0 and a negative sign (a 0 bit). Looks only at whole
    /// groups of eight elements, up to the shorter length; the caller checks a shorter last group.
    pub fn negative_zeros(simd, exponents: &[u16], signs: &[u8]) -> bool {
        let eights = (exponents.len() / 8).min(signs.len());
        let (groups, rest) = exponents[..8 * eights].as_chunks::<64>();
        let (packed, last) = signs[..eights].as_chunks::<8>();
        let mut found = 0;
        for (exponents, word) in groups.iter().zip(packed) {
            let mut zeros = 0;
            for (at, exponents) in exponents.chunks_exact(S::u16s::LEN).enumerate() {
                let zero = S::u16s::from_slice(simd, exponents).simd_eq(0);
                zeros |= zero.to_bitmask() << (at * S::u16s::LEN);
            }
            found |= zeros & !u64::from_le_bytes(*word);
        }
        found != 0 || plain(rest, last)
    } plain {
        let groups = exponents.as_chunks::<8>().0;
        let found = |(group, sign): (&[u16; 8], &u8)| {
            group.iter().enumerate().any(|(at, &exponent)| exponent == 0 && sign >> at & 1 == 0)
        };
        groups.iter().zip(signs).any(found)
    }
}

cases![
    ("negative_zeros", |input, output| {
        let exponents = input.elements(input.len, |at| (input.word(at) % 7) as u16);
        let bytes = input.len.div_ceil(8);
        // Zeros are positive, except that one byte is any.
        for any in [usize::MAX, 0, bytes / 2] {
            let signs = input.elements(bytes, |byte| {
                (0..8).fold(0, |bits, bit| {
                    let at = 8 * byte + bit;
                    bits | u8::from(byte == any || input.word(at) % 7 == 0) << bit
                }) & if byte == any { input.word(byte) as u8 } else { 0xff }
            });
            output.bits([u32::from(negative_zeros(&exponents, &signs))]);
        }
    }),
    ("natural_add", |input, output| {
        let exponents = input.elements(input.len, |at| input.word(at) as u16 % 255);
        let mut out = input.more();
        natural_add(&exponents, &input.bytes(), input.x, &mut out);
        output.computed(&out);
    }),
    ("natural_residual", |input, output| {
        let (mut values, mut rounded, mut exponents) =
            (input.floats(), input.zeros(), input.zeros());
        natural_residual(&mut values, &input.draws(), &mut rounded, &mut exponents);
        output.computed(&values);
        output.moved(&rounded);
        output.bits(exponents.iter().copied());
    }),
];

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
