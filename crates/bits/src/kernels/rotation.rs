//! What a random rotation of a block needs beside the transform if the block is sent as signs.
//!
//! Sums have 64 lanes of single precision: element i is added in lane i mod 64. The lanes are then
//! added in double precision, from first to last. A lane of a block of 4096 elements has 64 terms,
//! so the sum's relative error is about 2⁻²².

use fearless_simd::prelude::*;

use super::hadamard::{check_words, flipped, plain_flip_signs, sign_bits_of};
use super::sign::pack;
use super::{cases, kernel};

/// Lanes of the sums.
const LANES: usize = 64;

kernel! {
    /// Copies elements, flips the sign of element i if bit i mod 32 of word i / 32 is 1, and
    /// returns the [sum](self) of their squares.
    ///
    /// # Panics
    /// If the lengths differ, or there are fewer words than one for 32 elements.
    pub fn flip_to / plain_flip_to(simd, from: &[f32], words: &[u32], to: &mut [f32]) -> f64 {
        assert_eq!(from.len(), to.len());
        check_words(to, words);
        match S::f32s::LEN {
            16 => flip_and_square::<S, 4>(simd, from, words, to),
            8 => flip_and_square::<S, 8>(simd, from, words, to),
            _ => flip_and_square::<S, 16>(simd, from, words, to),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
fn plain_flip_to(from: &[f32], words: &[u32], to: &mut [f32]) -> f64 {
    to.copy_from_slice(from);
    plain_flip_signs(to, words);
    finish([0.0; LANES], from, square)
}

fn square(x: f32) -> f32 {
    x * x
}

#[inline(always)]
fn flip_and_square<S: Simd, const REGISTERS: usize>(
    simd: S,
    from: &[f32],
    words: &[u32],
    to: &mut [f32],
) -> f64 {
    let mut sums = [S::f32s::splat(simd, 0.0); REGISTERS];
    let (groups, rest) = from.as_chunks::<LANES>();
    let (places, last) = to.as_chunks_mut::<LANES>();
    for ((group, words), to) in groups.iter().zip(words.as_chunks::<2>().0).zip(places) {
        for (at, sum) in sums.iter_mut().enumerate() {
            let lanes = at * S::f32s::LEN..(at + 1) * S::f32s::LEN;
            let x = S::f32s::from_slice(simd, &group[lanes.clone()]);
            // Not fused, which SSE2 cannot.
            *sum += x * x;
            let (word, first) = (words[lanes.start / 32], lanes.start % 32);
            flipped(simd, x, word, first).store_slice(&mut to[lanes]);
        }
    }
    last.copy_from_slice(rest);
    plain_flip_signs(last, &words[2 * groups.len()..]);
    finish(lanes::<S>(&sums), rest, square)
}

kernel! {
    /// Writes 1 for each bit that is 0, and −1 for each that is 1: bit i mod 8 of byte i / 8 is for
    /// element i.
    ///
    /// # Panics
    /// If the length of `bits` is not `to.len().div_ceil(8)`.
    pub fn signed_ones / plain_signed_ones(simd, bits: &[u8], to: &mut [f32]) {
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
        plain_signed_ones(last, rest);
    }
}

fn plain_signed_ones(bits: &[u8], to: &mut [f32]) {
    for (to, &byte) in to.chunks_mut(8).zip(bits) {
        for (at, to) in to.iter_mut().enumerate() {
            *to = if byte >> at & 1 == 0 { 1.0 } else { -1.0 };
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

kernel! {
    /// Packs the sign bits of `values`, as [`sign_bits`](super::sign_bits) does, and returns the
    /// [sum](self) of the absolute values.
    ///
    /// # Panics
    /// If the length of `bits` is not `values.len().div_ceil(8)`.
    pub fn sign_bits_and_sum / plain_bits_and_sum(
        simd,
        values: &[f32],
        bits: &mut [u8],
    ) -> f64 {
        assert_eq!(bits.len(), values.len().div_ceil(8));
        match S::f32s::LEN {
            16 => bits_and_sum::<S, 4>(simd, values, bits),
            8 => bits_and_sum::<S, 8>(simd, values, bits),
            _ => bits_and_sum::<S, 16>(simd, values, bits),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
fn plain_bits_and_sum(values: &[f32], bits: &mut [u8]) -> f64 {
    super::sign_bits(values, bits);
    finish([0.0; LANES], values, f32::abs)
}

#[inline(always)]
fn bits_and_sum<S: Simd, const REGISTERS: usize>(simd: S, values: &[f32], bits: &mut [u8]) -> f64 {
    let mut sums = [S::f32s::splat(simd, 0.0); REGISTERS];
    let (groups, rest) = values.as_chunks::<LANES>();
    let (packed, last) = bits.split_at_mut(8 * groups.len());
    for (group, bytes) in groups.iter().zip(packed.as_chunks_mut::<8>().0) {
        pack(
            bytes,
            S::f32s::LEN,
            #[inline(always)]
            |at| {
                let x = S::f32s::from_slice(simd, &group[at..at + S::f32s::LEN]);
                sums[at / S::f32s::LEN] += x.abs();
                x.bitcast::<S::i32s>().simd_lt(0).to_bitmask()
            },
        );
    }
    super::sign_bits(rest, last);
    finish(lanes::<S>(&sums), rest, f32::abs)
}

#[inline(always)]
fn lanes<S: Simd>(sums: &[S::f32s]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    for (lanes, sum) in lanes.chunks_exact_mut(S::f32s::LEN).zip(sums) {
        sum.store_slice(lanes);
    }
    lanes
}

/// Adds the terms of the last values, and then the lanes.
#[inline(always)]
fn finish(mut lanes: [f32; LANES], rest: &[f32], term: impl Fn(f32) -> f32) -> f64 {
    for values in rest.chunks(LANES) {
        values.iter().zip(&mut lanes).for_each(|(&x, lane)| *lane += term(x));
    }
    lanes.iter().map(|&lane| f64::from(lane)).sum()
}

cases![
    ("flip_to", |input, output| {
        let mut to = input.zeros();
        output.wide(flip_to(&input.floats(), &input.draws(), &mut to));
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
    ("sign_bits_and_sum", |input, output| {
        let mut bits = input.elements(input.len.div_ceil(8), |_| 9);
        output.wide(sign_bits_and_sum(&input.floats(), &mut bits));
        output.bits(bits.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// 1, −2, 3, −4, …, 199: two groups of lanes, a word and a rest.
    fn alternating() -> Vec<f32> {
        (1..=199).map(|x| if x % 2 == 0 { -x as f32 } else { x as f32 }).collect()
    }

    #[test]
    fn signs_and_sums_by_hand() {
        let (values, mut bits) = (alternating(), [0; 25]);
        assert_eq!(sign_bits_and_sum(&values, &mut bits), 19_900.0);
        assert_eq!((bits[0], bits[23], bits[24]), (0b1010_1010, 0b1010_1010, 0b10_1010));
        let mut ones = vec![9.0; 199];
        signed_ones(&bits, &mut ones);
        assert!(ones.iter().zip(&values).all(|(one, x)| *one == x.signum()));
        assert_eq!((sign_bits_and_sum(&[], &mut []), flip_to(&[], &[], &mut [])), (0.0, 0.0));
    }

    #[test]
    fn flips_by_hand() {
        let (values, mut to) = (alternating(), vec![9.0; 199]);
        // Elements 1, 3 and so on change their signs, and elements 32 and 198.
        let mut words = [0xaaaa_aaaa; 7];
        (words[1], words[6]) = (words[1] | 1, words[6] | 1 << 6);
        assert_eq!(flip_to(&values, &words, &mut to), 2_646_700.0);
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
