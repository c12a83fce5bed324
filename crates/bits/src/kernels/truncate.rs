//! Truncation of floats to 32, 16, 8 or 0 bits, by their magnitude.
//!
//! A tag gives the kept part: 3 the whole float, for magnitudes of 1 or more; 2 a sign and 15
//! fractional bits; 1 a sign and 7 fractional bits; 0 nothing. The sign is the highest bit.

use super::{cases, kernel};

/// The limits between tags, as biased exponents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cuts {
    /// Exponents below this have tag 0.
    pub least: u32,
    /// Exponents from this on have tag 2, up to the exponent of 1.
    pub middle: u32,
}

/// The biased exponent of 1.
const ONE: u32 = 127;
const MANTISSA: u32 = 23;
/// The steps of 15 and of 7 fractional bits.
const WIDE: f32 = 1.0 / 32_768.0;
const NARROW: f32 = 1.0 / 128.0;

/// One of two numbers, without a branch: a loop with branches is not compiled to vectors.
#[inline(always)]
fn choose(condition: bool, yes: u32, no: u32) -> u32 {
    let mask = u32::from(condition).wrapping_neg();
    yes & mask | no & !mask
}

/// The truncated number for a tag.
#[inline(always)]
fn number(tag: u32, word: u32) -> f32 {
    let wide = tag == 2;
    let sign = choose(wide, word >> 15, word >> 7) & 1;
    let magnitude = word & choose(wide, 0x7fff, 0x7f);
    let scale = f32::from_bits(choose(wide, WIDE.to_bits(), NARROW.to_bits()));
    let fraction = (magnitude as i32 as f32 * scale).to_bits() | sign << 31;
    f32::from_bits(choose(tag == 3, word, fraction))
}

kernel! {
    /// Writes the tag and the truncated bits of each value, and leaves the truncation error in
    /// `values`. Processes the shortest length.
    pub fn truncate_residual(
        values: &mut [f32],
        cuts: Cuts,
        tags: &mut [u8],
        words: &mut [u32],
    ) {
        for ((x, tag), word) in values.iter_mut().zip(tags).zip(words) {
            let bits = x.to_bits();
            let (sign, exponent) = (bits >> 31, bits >> MANTISSA & 255);
            let fraction = 1 << MANTISSA | bits & ((1 << MANTISSA) - 1);
            let fraction = fraction >> ONE.saturating_sub(exponent).min(31);
            let found = u32::from(exponent >= cuts.least)
                + u32::from(exponent >= cuts.middle)
                + u32::from(exponent >= ONE);
            let (narrow, wide) = (fraction >> 16 | sign << 7, fraction >> 8 | sign << 15);
            let kept = choose(found == 3, bits, choose(found == 2, wide, narrow));
            *word = choose(found == 0, 0, kept);
            *tag = found as u8;
            *x -= number(found, *word);
        }
    }
}

kernel! {
    /// Adds `weight` times each truncated value. Tags are below 4. Processes the shortest length.
    pub fn truncated_add(
        tags: &[u8],
        words: &[u32],
        weight: f32,
        out: &mut [f32],
    ) {
        for ((&tag, &word), out) in tags.iter().zip(words).zip(out) {
            *out += weight * number(u32::from(tag), word);
        }
    }
}

kernel! {
    /// Whether truncating finite values can produce these words and tags, which are below 4.
    /// Processes the shorter length.
    pub fn truncated_valid(
        tags: &[u8],
        words: &[u32],
        cuts: Cuts,
    ) -> bool {
        // The largest magnitude below the exponent, and the smallest from it on.
        let below = |exponent: u32, bits: u32| ((1 << bits) >> (ONE - exponent).min(31)) as u32;
        let last = |exponent: u32, bits: u32| below(exponent, bits).max(1) - 1;
        let narrow = (below(cuts.least, 7), last(cuts.middle, 7));
        let wide = below(cuts.middle, 15);
        let mut wrong = false;
        for (&tag, &word) in tags.iter().zip(words) {
            let (short, long, float) = (word & 0x7f, word & 0x7fff, word & 0x7fff_ffff);
            // Computes all four cases, because a branch on the tag would be mispredicted.
            wrong |= (tag == 0) & (word != 0)
                | (tag == 1) & ((short < narrow.0) | (short > narrow.1) | (word >> 8 != 0))
                | (tag == 2) & ((long < wide) | (word >> 16 != 0))
                | (tag == 3) & !(ONE << MANTISSA..255 << MANTISSA).contains(&float);
        }
        !wrong
    }
}

cases![
    ("truncate_residual", |input, output| {
        for (least, middle) in [(117, 122), (126, 127), (1, 64)] {
            let (mut values, mut tags, mut words) = (input.floats(), input.zeros(), input.zeros());
            truncate_residual(&mut values, Cuts { least, middle }, &mut tags, &mut words);
            output.computed(&values);
            output.bits(tags.iter().copied());
            output.bits(words.iter().copied());
        }
    }),
    ("truncated_add", |input, output| {
        let tags = input.elements(input.len, |at| input.word(at) as u8 % 4);
        let mut out = input.more();
        truncated_add(&tags, &input.draws(), input.x, &mut out);
        output.computed(&out);
    }),
    ("truncated_valid", |input, output| {
        let cuts = Cuts { least: 117, middle: 122 };
        let (mut values, mut tags, mut words) = (input.floats(), input.zeros(), input.zeros());
        truncate_residual(&mut values, cuts, &mut tags, &mut words);
        output.bits([truncated_valid(&tags, &words, cuts)]);
        output.bits([truncated_valid(&tags, &input.draws(), cuts)]);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// An error bound of 2^−10: tags change at 2^−10, 2^−5 and 1.
    const CUTS: Cuts = Cuts { least: 117, middle: 122 };

    #[test]
    fn tags_by_hand() {
        // 1.5; 0.75 as 0x6000 of 2^15; −(2^−5 + 2^−15 + 2^−16) loses the last; 0.02 is 2.56 of 2^7;
        // −0.002 is less than one of them; magnitudes below 2^−10 become 0.
        let tail = -(2f32.powi(-5) + 2f32.powi(-15) + 2f32.powi(-16));
        let mut values = [1.5, 0.75, tail, 0.02, -0.002, 0.0009, -0.0];
        let (mut tags, mut words) = ([9; 7], [9; 7]);
        truncate_residual(&mut values, CUTS, &mut tags, &mut words);
        assert_eq!(tags, [3, 2, 2, 1, 1, 0, 0]);
        assert_eq!(words, [0x3fc0_0000, 0x6000, 0x8401, 2, 0x80, 0, 0]);
        assert_eq!(values[..3], [0.0, 0.0, -2f32.powi(-16)]);
        assert_eq!(values[3..], [0.02 - 2.0 / 128.0, -0.002, 0.0009, 0.0]);
        let mut out = [1.0; 7];
        truncated_add(&tags, &words, 2.0, &mut out);
        assert_eq!(out, [4.0, 2.5, 1.0 - 2.0 * 1025.0 / 32_768.0, 1.031_25, 1.0, 1.0, 1.0]);
        assert!(truncated_valid(&tags, &words, CUTS));
    }

    #[test]
    fn words_that_no_value_produces_are_invalid() {
        let valid = |tag, word| truncated_valid(&[tag], &[word], CUTS);
        assert!(valid(0, 0) && !valid(0, 1));
        // From 2^−10 to 2^−5 are 0 to 3 of 2^7.
        assert!(valid(1, 3) && valid(1, 0x83) && !valid(1, 4) && !valid(1, 0x100));
        // From 2^−5 to 1 are 2^10 and more of 2^15.
        assert!(valid(2, 1024) && valid(2, 0xffff) && !valid(2, 1023) && !valid(2, 0x8000));
        assert!(valid(3, 0x3f80_0000) && valid(3, 0xff7f_ffff));
        assert!(!valid(3, 0x3f7f_ffff) && !valid(3, 0x7f80_0000) && !valid(3, 0xffff_ffff));
    }
}
