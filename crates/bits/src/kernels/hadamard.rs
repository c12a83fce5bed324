//! The Walsh–Hadamard transform, and random signs.

use fearless_simd::prelude::*;

use super::{cases, kernel};

kernel! {
    /// The Walsh–Hadamard transform in place, not normalised: applied twice, it multiplies by the
    /// length. Element i of the result is the sum of the elements, each with the sign (−1)^(number
    /// of 1 bits that i and its index have in common).
    ///
    /// The order of additions is the same on every processor: elements 1 apart are combined first,
    /// then 2 apart, then 4. It takes log2(length) additions per element; call it for blocks that
    /// stay in the first-level cache.
    ///
    /// # Panics
    /// If the length is not a power of two.
    pub fn hadamard(simd, values: &mut [f32]) {
        check_length(values);
        transform(simd, values);
    } plain {
        plain_hadamard(values);
    }
}

kernel! {
    /// A random rotation, not normalised: flips the sign of element i if bit i mod 32 of word i /
    /// 32 is 1, then applies the [transform](hadamard).
    ///
    /// # Panics
    /// If the length is not a power of two, or there are fewer words than one for 32 elements.
    pub fn rotate(simd, values: &mut [f32], words: &[u32]) {
        check_length(values);
        check_words(values, words);
        flip_signs(simd, values, words);
        transform(simd, values);
    } plain {
        plain_flip_signs(values, words);
        plain_hadamard(values);
    }
}

kernel! {
    /// The reverse of [`rotate`], times the length: the transform, then the flips.
    ///
    /// # Panics
    /// As [`rotate`].
    pub fn rotate_back(simd, values: &mut [f32], words: &[u32]) {
        check_length(values);
        check_words(values, words);
        transform(simd, values);
        flip_signs(simd, values, words);
    } plain {
        plain_hadamard(values);
        plain_flip_signs(values, words);
    }
}

pub(super) fn check_length(values: &[f32]) {
    assert!(values.len().is_power_of_two(), "the length {} is not a power of two", values.len());
}

pub(super) fn check_words(values: &[f32], words: &[u32]) {
    assert!(words.len() >= values.len().div_ceil(32), "a word for 32 elements");
}

pub(super) fn plain_hadamard(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

pub(super) fn plain_flip_signs(values: &mut [f32], words: &[u32]) {
    for (values, word) in values.chunks_mut(32).zip(words) {
        for (at, value) in (0u32..).zip(values) {
            *value = f32::from_bits(value.to_bits() ^ (word >> at & 1) << 31);
        }
    }
}

/// Flips the sign of element i if bit i mod 32 of word i / 32 is 1.
#[inline(always)]
fn flip_signs<S: Simd>(simd: S, values: &mut [f32], words: &[u32]) {
    let (groups, rest) = values.as_chunks_mut::<32>();
    for (group, &word) in groups.iter_mut().zip(words) {
        for (at, lanes) in group.chunks_exact_mut(S::f32s::LEN).enumerate() {
            let x = S::f32s::from_slice(simd, lanes);
            flipped(simd, x, word, at * S::f32s::LEN).store_slice(lanes);
        }
    }
    // A power of two leaves a rest only if it is below 32.
    plain_flip_signs(rest, words);
}

/// The transform in as few passes as the registers allow: two for 4096 elements with AVX-512.
#[inline(always)]
fn transform<S: Simd>(simd: S, values: &mut [f32]) {
    if values.len() < S::f32s::LEN {
        return plain_hadamard(values);
    }
    // Of the registers, sixteen or 32, half hold elements.
    let most = if S::f32s::LEN == 16 || cfg!(target_arch = "aarch64") { 16 } else { 8 };
    let len = values.len();
    match len / S::f32s::LEN {
        1 => return blocks::<S, 1>(simd, values),
        2 => return blocks::<S, 2>(simd, values),
        4 => return blocks::<S, 4>(simd, values),
        8 => return blocks::<S, 8>(simd, values),
        16 if most == 16 => return blocks::<S, 16>(simd, values),
        _ if most == 16 => blocks::<S, 16>(simd, values),
        _ => blocks::<S, 8>(simd, values),
    }
    // Two passes apart from the loop, because there the compiler knows the distances.
    let apart = most * S::f32s::LEN;
    let mut done = pass(simd, values, most, apart);
    if done < len {
        done = pass(simd, values, most, most * apart);
    }
    while done < len {
        done = pass(simd, values, most, done);
    }
}

/// Combines elements at the distance `apart` and at multiples of it, with at most `most` registers.
/// Returns the length of the blocks that are then transformed.
#[inline(always)]
fn pass<S: Simd>(simd: S, values: &mut [f32], most: usize, apart: usize) -> usize {
    let registers = most.min(values.len() / apart);
    match registers {
        2 => across::<S, 2>(simd, values, apart),
        4 => across::<S, 4>(simd, values, apart),
        16 if most == 16 => across::<S, 16>(simd, values, apart),
        _ => across::<S, 8>(simd, values, apart),
    }
    registers * apart
}

/// Transforms each block of `REGISTERS` registers.
#[inline(always)]
fn blocks<S: Simd, const REGISTERS: usize>(simd: S, values: &mut [f32]) {
    let mut x = [S::f32s::splat(simd, 0.0); REGISTERS];
    for block in values.chunks_exact_mut(REGISTERS * S::f32s::LEN) {
        for (x, lanes) in x.iter_mut().zip(block.chunks_exact(S::f32s::LEN)) {
            *x = within(simd, S::f32s::from_slice(simd, lanes));
        }
        butterflies::<S>(&mut x);
        for (x, lanes) in x.iter().zip(block.chunks_exact_mut(S::f32s::LEN)) {
            x.store_slice(lanes);
        }
    }
}

/// Combines elements at the distance `apart`, a multiple of a register's length, and at multiples
/// of it up to half of `REGISTERS` times.
#[inline(always)]
fn across<S: Simd, const REGISTERS: usize>(simd: S, values: &mut [f32], apart: usize) {
    let mut x = [S::f32s::splat(simd, 0.0); REGISTERS];
    for block in values.chunks_exact_mut(REGISTERS * apart) {
        for column in (0..apart / S::f32s::LEN).map(|column| column * S::f32s::LEN) {
            for (at, x) in x.iter_mut().enumerate() {
                let lanes = &block[at * apart + column..][..S::f32s::LEN];
                *x = S::f32s::from_slice(simd, lanes);
            }
            butterflies::<S>(&mut x);
            for (at, x) in x.iter().enumerate() {
                let lanes = &mut block[at * apart + column..][..S::f32s::LEN];
                x.store_slice(lanes);
            }
        }
    }
}

/// Flips the sign of lane i if bit `first` + i of the word is 1.
#[inline(always)]
pub(super) fn flipped<S: Simd>(simd: S, x: S::f32s, word: u32, first: usize) -> S::f32s {
    (x.bitcast::<S::u32s>() ^ sign_bits_of(simd, word, first)).bitcast()
}

/// In lane i the sign bit of a float, set if bit `first` + i of the word is 1.
#[inline(always)]
pub(super) fn sign_bits_of<S: Simd>(simd: S, word: u32, first: usize) -> S::u32s {
    if cfg!(target_arch = "x86_64") && S::f32s::LEN == 4 {
        // SSE2 cannot shift each lane by another number.
        let set = S::mask32s::from_bitmask(simd, u64::from(word >> first));
        return set.select(S::u32s::splat(simd, 1 << 31), S::u32s::splat(simd, 0));
    }
    let shifts = S::u32s::from_fn(simd, |lane| 31u32.saturating_sub((first + lane) as u32));
    (S::u32s::splat(simd, word) << shifts) & (1 << 31)
}

/// The transform of the elements of a register.
#[inline(always)]
fn within<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // Elements change places with their neighbours, pairs with theirs, and so on.
    let odd = S::mask32s::from_bitmask(simd, 0xaaaa);
    let (next, last) = (x.slide_within_blocks::<1>(x), x.slide_within_blocks::<3>(x));
    let x = step::<S, 1>(simd, x, odd.select(last, next));
    let mut x = step::<S, 2>(simd, x, x.slide_within_blocks::<2>(x));
    if S::f32s::LEN == 8 {
        x = step::<S, 4>(simd, x, x.slide::<4>(x));
    } else if S::f32s::LEN == 16 {
        let higher = S::mask32s::from_bitmask(simd, 0xf0f0);
        x = step::<S, 4>(simd, x, higher.select(x.slide::<12>(x), x.slide::<4>(x)));
        x = step::<S, 8>(simd, x, x.slide::<8>(x));
    }
    x
}

/// `other + x`, or `other − x` in places with the bit `HALF`. The product is exact, so the sum is
/// the same with and without fusing.
#[inline(always)]
fn step<S: Simd, const HALF: usize>(simd: S, x: S::f32s, other: S::f32s) -> S::f32s {
    let sign = |at| if at & HALF == 0 { 1.0 } else { -1.0 };
    x.mul_add(S::f32s::from_fn(simd, sign), other)
}

/// The transform across registers.
#[inline(always)]
fn butterflies<S: Simd>(x: &mut [S::f32s]) {
    // One loop for each distance, so the compiler unrolls them and keeps `x` in registers.
    combine::<S, 1>(x);
    combine::<S, 2>(x);
    combine::<S, 4>(x);
    combine::<S, 8>(x);
}

/// Sums and differences of registers that are `HALF` apart.
#[inline(always)]
fn combine<S: Simd, const HALF: usize>(x: &mut [S::f32s]) {
    for pair in x.chunks_exact_mut(2 * HALF) {
        let (lows, highs) = pair.split_at_mut(HALF);
        for (low, high) in lows.iter_mut().zip(highs) {
            (*low, *high) = (*low + *high, *low - *high);
        }
    }
}

kernel! {
    /// Writes for each value the number of `limits` that the absolute value times `inverse`
    /// reaches, plus `below` if the value is negative. Processes the shorter length.
    pub fn limits_reached(
        values: &[f32],
        inverse: f32,
        limits: &[f32],
        below: u16,
        symbols: &mut [u16],
    ) {
        for (value, symbol) in values.iter().zip(&mut *symbols) {
            *symbol = below & (value.is_sign_negative() as u16).wrapping_neg();
        }
        for limit in limits {
            for (value, symbol) in values.iter().zip(&mut *symbols) {
                *symbol += u16::from((value * inverse).abs() >= *limit);
            }
        }
    }
}

cases![
    ("hadamard", |input, output| {
        let mut values = input.floats();
        if let Some(bits) = values.len().checked_ilog2() {
            hadamard(&mut values[..1 << bits]);
        }
        output.computed(&values);
    }),
    ("rotate", |input, output| {
        let mut values = input.floats();
        if let Some(bits) = values.len().checked_ilog2() {
            rotate(&mut values[..1 << bits], &input.draws());
        }
        output.computed(&values);
    }),
    ("rotate_back", |input, output| {
        let mut values = input.floats();
        if let Some(bits) = values.len().checked_ilog2() {
            rotate_back(&mut values[..1 << bits], &input.draws());
        }
        output.computed(&values);
    }),
    ("limits_reached", |input, output| {
        let mut symbols = input.symbols();
        limits_reached(&input.floats(), input.x, &[0.1, 0.5, 3.0], 4, &mut symbols);
        output.bits(symbols.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Small whole numbers, whose sums are exact in any order.
    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|at| (at * 7 % 13) as f32 - 6.0).collect()
    }

    #[test]
    fn transforms_are_sums_with_signs() {
        for bits in 0..=12 {
            let values = numbers(1 << bits);
            let sign = |at: usize| if at.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            let sum = |row: usize| {
                values.iter().enumerate().map(|(at, value)| sign(row & at) * value).sum::<f32>()
            };
            let expected: Vec<f32> = (0..values.len()).map(sum).collect();
            let mut found = values.clone();
            hadamard(&mut found);
            assert_eq!(found, expected);
            hadamard(&mut found);
            let length = values.len() as f32;
            assert!(found.iter().zip(&values).all(|(found, value)| *found == length * value));
        }
    }

    #[test]
    fn signs_by_hand() {
        let mut values = [1.0; 34];
        values[1] = -2.0;
        plain_flip_signs(&mut values, &[0b111, 2]);
        assert_eq!(values[..4], [-1.0, 2.0, -1.0, 1.0]);
        assert_eq!(values[31..], [1.0, 1.0, -1.0]);
    }

    #[test]
    fn rotations_are_flips_and_a_transform() {
        for bits in 0..=17 {
            let values = numbers(1 << bits);
            let words: Vec<u32> = (1u32..=4096).map(|at| at.wrapping_mul(2_654_435_761)).collect();
            let flipped = |values: &[f32]| -> Vec<f32> {
                let flip = |(at, x): (usize, &f32)| {
                    if words[at / 32] >> (at % 32) & 1 == 1 { -x } else { *x }
                };
                values.iter().enumerate().map(flip).collect()
            };
            let mut expected = flipped(&values);
            plain_hadamard(&mut expected);
            let mut found = values.clone();
            rotate(&mut found, &words);
            assert_eq!(found, expected);
            plain_hadamard(&mut expected);
            rotate_back(&mut found, &words);
            assert_eq!(found, flipped(&expected));
        }
    }

    #[test]
    fn limits_by_hand() {
        let mut symbols = [9; 6];
        let values = [0.0, -0.5, 0.5, 1.0, -3.0, -0.0];
        limits_reached(&values, 2.0, &[1.0, 2.0], 4, &mut symbols);
        assert_eq!(symbols, [0, 5, 1, 2, 6, 4]);
    }
}
