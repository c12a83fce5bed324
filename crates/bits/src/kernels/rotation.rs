//! What a random rotation of a block needs beside the transform if the block is sent as signs.

use fearless_simd::prelude::*;

use super::hadamard::{check_words, flipped, plain_flip_signs, sign_bits_of};
use super::{cases, kernel};

kernel! {
    /// Copies elements, and flips the sign of element i if bit i mod 32 of word i / 32 is 1.
    ///
    /// # Panics
    /// If the lengths differ, or there are fewer words than one for 32 elements.
    pub fn flip_to(simd, from: &[f32], words: &[u32], to: &mut [f32]) {
        assert_eq!(from.len(), to.len());
        check_words(to, words);
        let (groups, rest) = from.as_chunks::<32>();
        let (places, last) = to.as_chunks_mut::<32>();
        for ((group, &word), to) in groups.iter().zip(words).zip(places) {
            for at in (0..32).step_by(S::f32s::LEN) {
                let lanes = at..at + S::f32s::LEN;
                let x = S::f32s::from_slice(simd, &group[lanes.clone()]);
                flipped(simd, x, word, at).store_slice(&mut to[lanes]);
            }
        }
        last.copy_from_slice(rest);
        plain_flip_signs(last, &words[groups.len()..]);
    } plain {
        to.copy_from_slice(from);
        plain_flip_signs(to, words);
    }
}

kernel! {
    /// Writes 1 for each bit that is 0, and −1 for each that is 1: bit i mod 8 of byte i / 8 is for
    /// element i.
    ///
    /// # Panics
    /// If the length of `bits` is not `to.len().div_ceil(8)`.
    pub fn signed_ones(simd, bits: &[u8], to: &mut [f32]) {
        assert_eq!(bits.len(), to.len().div_ceil(8));
        let one = S::f32s::splat(simd, 1.0).bitcast::<S::u32s>();
        let (groups, rest) = to.as_chunks_mut::<32>();
        let (words, last) = bits.split_at(4 * groups.len());
        for (group, word) in groups.iter_mut().zip(words.as_chunks().0) {
            let word = u32::from_le_bytes(*word);
            for (at, lanes) in group.chunks_exact_mut(S::f32s::LEN).enumerate() {
                let negative = sign_bits_of(simd, word, at * S::f32s::LEN);
                (negative | one).bitcast::<S::f32s>().store_slice(lanes);
            }
        }
        plain(last, rest);
    } plain {
        for (to, &byte) in to.chunks_mut(8).zip(bits) {
            for (at, to) in to.iter_mut().enumerate() {
                *to = if byte >> at & 1 == 0 { 1.0 } else { -1.0 };
            }
        }
    }
}

kernel! {
    /// [`add_limited`](super::add_limited) of the values with signs flipped as by [`flip_to`].
    /// Processes the shorter length.
    ///
    /// # Panics
    /// If there are fewer words than one for 32 elements of `out`.
    pub fn add_flipped(out: &mut [f32], values: &[f32], words: &[u32], scale: f32, weight: f32) {
        check_words(out, words);
        let len = out.len().min(values.len());
        let (groups, rest) = out[..len].as_chunks_mut::<32>();
        let (places, last) = values[..len].as_chunks::<32>();
        for ((out, values), &word) in groups.iter_mut().zip(places).zip(words) {
            add_word(out, values, word, scale, weight);
        }
        if let Some(&word) = words.get(places.len()) {
            add_word(rest, last, word, scale, weight);
        }
    }
}

/// The same for the elements of a word.
#[inline(always)]
fn add_word(out: &mut [f32], values: &[f32], word: u32, scale: f32, weight: f32) {
    for (at, (out, value)) in (0u32..).zip(out.iter_mut().zip(values)) {
        let value = (scale * value).clamp(f32::MIN, f32::MAX);
        *out += weight * f32::from_bits(value.to_bits() ^ (word >> at) << 31);
    }
}

cases![
    ("flip_to", |input, output| {
        let mut to = input.zeros();
        flip_to(&input.floats(), &input.draws(), &mut to);
        output.moved(&to);
    }),
    ("signed_ones", |input, output| {
        let bits = input.elements(input.len.div_ceil(8), |at| input.word(at) as u8);
        let mut to = input.zeros();
        signed_ones(&bits, &mut to);
        output.moved(&to);
    }),
    ("add_flipped", |input, output| {
        let mut out = input.floats();
        add_flipped(&mut out, &input.more(), &input.draws(), input.x, input.y);
        output.computed(&out);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// 1, −2, 3, −4, …, 199: six words and a rest.
    fn alternating() -> Vec<f32> {
        (1..=199).map(|x| if x % 2 == 0 { -x as f32 } else { x as f32 }).collect()
    }

    #[test]
    fn signs_by_hand() {
        let mut ones = [9.0; 11];
        signed_ones(&[0b1010_0000, 0b101], &mut ones);
        assert_eq!(ones, [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0]);
        signed_ones(&[], &mut []);
        flip_to(&[], &[], &mut []);
    }

    #[test]
    fn flips_by_hand() {
        let (values, mut to) = (alternating(), vec![9.0; 199]);
        // Elements 1, 3 and so on change their signs, and elements 32 and 198.
        let mut words = [0xaaaa_aaaa; 7];
        (words[1], words[6]) = (words[1] | 1, words[6] | 1 << 6);
        flip_to(&values, &words, &mut to);
        let flipped = |at: usize| if at == 32 || at == 198 { -1.0 } else { 1.0 };
        assert!((0..199).all(|at| to[at] == flipped(at) * (at + 1) as f32));
        let mut out = vec![1.0; 199];
        add_flipped(&mut out, &values, &words, 2.0, 0.5);
        assert!((0..199).all(|at| out[at] == 1.0 + to[at]));
        let mut out = [0.0];
        add_flipped(&mut out, &[-1e30], &[1], 1e10, 0.5);
        assert_eq!(out, [0.5 * f32::MAX]);
    }
}
