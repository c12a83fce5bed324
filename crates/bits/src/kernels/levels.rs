//! Stochastic rounding to evenly spaced levels; the expectation is the value.

use super::{cases, kernel};

/// A range of evenly spaced levels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// The lowest level, an integer of at least −2^15.
    pub least: f32,
    /// The highest level, an integer of at most 2^15.
    pub most: f32,
    /// The factor for quantization: 1 over the distance between two levels.
    pub inverse: f32,
    /// The factor for decoding: the distance between two levels.
    pub step: f32,
}

/// 1.5·2^23: adding it to a number of magnitude below 2^22 rounds the number to an integer, ties to
/// even, in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// 2^24: the number of fractions in the upper bits of a random word.
const FRACTIONS: f32 = 16_777_216.0;

kernel! {
    /// Quantizes `values` to level ⌊t⌋ or ⌊t⌋ + 1 with t = value·inverse, clipped to the lowest and
    /// the highest level. Chooses the upper level if the upper 24 bits of a random word, as a
    /// number in [0, 1), are below t − ⌊t⌋. Writes levels counted from the lowest one. A NaN
    /// becomes the lowest level. Processes the shortest length.
    ///
    /// t has a precision of 2⁻²⁴: with 8-bit levels it is first rounded towards zero to a multiple
    /// of 2⁻²⁴; otherwise t − ⌊t⌋ is rounded to an f32.
    pub fn stochastic_levels(
        values: &[f32],
        levels: Levels,
        random: &[u32],
        symbols: &mut [u16],
    ) {
        let Levels { least, most, inverse, .. } = levels;
        let clipped = |x: f32| {
            let t = x * inverse;
            // A NaN compares false and becomes the lowest level; its bits might not be a level.
            let t = if t > least { t } else { least };
            if t > most { most } else { t }
        };
        let of_eight_bits = -128.0..=127.0;
        if of_eight_bits.contains(&least) && of_eight_bits.contains(&most) {
            // Makes levels count from the lowest one, and adds all fractions; the word subtracts
            // some of them again.
            let all = ((FRACTIONS * -least) as i64 as u32).wrapping_add(FRACTIONS as u32 - 1);
            for ((x, word), symbol) in values.iter().zip(random).zip(symbols) {
                // SAFETY: the product is from −2^31 to 127·2^24, because t is from −128 to 127, and
                // no NaN.
                let t = unsafe { (clipped(*x) * FRACTIONS).to_int_unchecked::<i32>() };
                let counted = (t as u32).wrapping_add(all).wrapping_sub(word >> 8);
                *symbol = (counted >> 24) as u16;
            }
            return;
        }
        for ((x, word), symbol) in values.iter().zip(random).zip(symbols) {
            let t = clipped(*x);
            let nearest = (t + ROUND) - ROUND;
            let below = if nearest > t { nearest - 1.0 } else { nearest };
            let chance = (word >> 8) as i32 as f32 * (1.0 / FRACTIONS);
            let level = if chance < t - below { below + 1.0 } else { below };
            // Integers below 2^24: both sums are exact.
            *symbol = (level + (ROUND - least)).to_bits() as u16;
        }
    }
}

/// Subtracts `level·step` from each value, which leaves the quantization error. Processes the
/// shorter length.
pub fn levels_off(values: &mut [f32], symbols: &[u16], levels: Levels) {
    levels_add(symbols, levels.least, -levels.step, values);
}

kernel! {
    /// Adds `step` times each level; levels are counted from `least`, an integer. Processes the
    /// shorter length.
    pub fn levels_add(symbols: &[u16], least: f32, step: f32, out: &mut [f32]) {
        for (&symbol, out) in symbols.iter().zip(out) {
            *out += step * (f32::from(symbol) + least);
        }
    }
}

cases![
    ("levels_add", |input, output| {
        let mut out = input.more();
        levels_add(&input.symbols(), -100.0, input.x, &mut out);
        output.computed(&out);
    }),
    ("levels_off", |input, output| {
        let levels = Levels { least: -100.0, most: 99.0, inverse: input.x, step: input.y };
        let mut values = input.floats();
        levels_off(&mut values, &input.symbols(), levels);
        output.computed(&values);
    }),
    ("stochastic_levels", |input, output| {
        for (least, most) in [(-100.0, 99.0), (-1000.0, 999.0)] {
            let levels = Levels { least, most, inverse: input.x, step: input.y };
            let (mut values, mut symbols) = (input.floats(), input.zeros());
            stochastic_levels(&values, levels, &input.draws(), &mut symbols);
            levels_off(&mut values, &symbols, levels);
            output.symbols((&input.floats(), input.x), &values, &symbols);
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn levels_by_hand() {
        let levels = Levels { least: -2.0, most: 3.0, inverse: 2.0, step: 0.5 };
        // t = 0.5 twice, −0.5 twice, 3 and −2 clipped, 1, 0.
        let mut values = [0.25, 0.25, -0.25, -0.25, 9.0, -9.0, 0.5, -0.0];
        let half = 1 << 31;
        let words = [half - 1, half, half - 1, half, 0, 0, 0, 0];
        let mut symbols = [9; 8];
        stochastic_levels(&values, levels, &words, &mut symbols);
        assert_eq!(symbols, [3, 2, 2, 1, 5, 0, 3, 2]);
        levels_off(&mut values, &symbols, levels);
        assert_eq!(values, [-0.25, 0.25, -0.25, 0.25, 7.5, -8.0, 0.0, 0.0]);
        let mut out = [1.0; 8];
        levels_add(&symbols, -2.0, 0.5, &mut out);
        assert_eq!(out, [1.5, 1.0, 1.0, 0.5, 2.5, 0.0, 1.5, 1.0]);
    }

    #[test]
    fn fractions_of_two_to_the_minus_24_are_distinguished() {
        let levels = Levels { least: -128.0, most: 127.0, inverse: 1.0, step: 1.0 };
        let one = 2f32.powi(-24);
        let values =
            [one, one, -one, -one, 0.9 * one, -0.9 * one, 127.0, -128.0, -3.0, 300.0, -1e9];
        // The first, second, last but one and last of the fractions below 1.
        let (second, last) = (1 << 8, u32::MAX);
        let words = [0, second, last - second, last, 0, 0, 0, last, 0, 0, last];
        let mut symbols = [9; 11];
        stochastic_levels(&values, levels, &words, &mut symbols);
        assert_eq!(symbols, [129, 128, 128, 127, 128, 128, 255, 0, 125, 255, 0]);
    }

    #[test]
    fn levels_are_those_of_the_definition() {
        let mut words = vec![0; 4000];
        crate::kernels::philox4x32([1, 2], [0; 4], &mut words);
        let (random, more) = words.split_at(2000);
        let values: Vec<f32> = more.iter().map(|&w| (w as i32 as f32) * 2f32.powi(-31)).collect();
        for (least, most, inverse) in [
            (-127.0, 127.0, 100.0),
            (-128.0, 127.0, 300.0),
            (-3.0, 2.0, 1.0),
            (0.0, 5.0, 5.0),
            (2.0, 9.0, 8.0),
        ] {
            let levels = Levels { least, most, inverse, step: 1.0 / inverse };
            let mut symbols = vec![0; 2000];
            stochastic_levels(&values, levels, random, &mut symbols);
            for ((&x, &word), symbol) in values.iter().zip(random).zip(symbols) {
                let t = f64::from((x * inverse).clamp(least, most));
                let t = (t * 16_777_216.0).trunc() / 16_777_216.0;
                let chance = f64::from(word >> 8) / 16_777_216.0;
                let level = t.floor() + f64::from(u8::from(chance < t - t.floor()));
                assert_eq!(f64::from(symbol), level - f64::from(least), "{x}, {word}");
            }
        }
    }

    #[test]
    fn a_nan_becomes_a_level() {
        let levels = Levels { least: -2.0, most: 3.0, inverse: 2.0, step: 0.5 };
        // The NaN of GPUs, the quiet NaN of this processor, and a signalling NaN.
        let mut values = [0x7fff_ffff, 0xffc0_0000, 0x7f80_0001].map(f32::from_bits);
        let mut symbols = [9; 3];
        stochastic_levels(&values, levels, &[0; 3], &mut symbols);
        assert_eq!(symbols, [0; 3]);
        levels_off(&mut values, &symbols, levels);
        assert!(values.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn many_levels_are_distinguished() {
        let levels = Levels { least: -32_768.0, most: 32_767.0, inverse: 1.0, step: 1.0 };
        let values = [-32_768.0, -32_767.0, -1.0, 32_766.0, 32_767.0, 40_000.0];
        let mut symbols = [9; 6];
        stochastic_levels(&values, levels, &[0; 6], &mut symbols);
        assert_eq!(symbols, [0, 1, 32_767, 65_534, 65_535, 65_535]);
    }
}
