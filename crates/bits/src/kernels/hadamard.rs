//! The Walsh–Hadamard transform, and random signs.

use super::kernel;

/// Elements transformed within a register.
const GROUP: usize = 16;

/// The Walsh–Hadamard transform in place, not normalised: applied twice, it multiplies by the
/// length. Element i of the result is the sum of the elements, each with the sign (−1)^(number of 1
/// bits that i and its index have in common).
///
/// The order of additions is the same on every processor: elements 1 apart are combined first, then
/// 2 apart, then 4. It takes log2(length) additions per element; call it for blocks that stay in
/// the first-level cache.
///
/// # Panics
/// If the length is not a power of two.
pub fn hadamard(values: &mut [f32]) {
    check_length(values);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if avx512::takes(values) {
        // SAFETY: the processor has the features the function is compiled for.
        return unsafe { avx512::hadamard(values) };
    }
    transform(values);
}

/// A random rotation, not normalised: flips the sign of element i if bit i mod 32 of word i / 32 is
/// 1, then applies the [transform](hadamard).
///
/// # Panics
/// If the length is not a power of two, or there are fewer words than one for 32 elements.
pub fn rotate(values: &mut [f32], words: &[u32]) {
    check_length(values);
    check_words(values, words);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if avx512::takes(values) {
        // SAFETY: as above.
        return unsafe { avx512::rotate(values, words) };
    }
    flip_signs(values, words);
    transform(values);
}

/// The reverse of [`rotate`], times the length: the transform, then the flips.
///
/// # Panics
/// As [`rotate`].
pub fn rotate_back(values: &mut [f32], words: &[u32]) {
    check_length(values);
    check_words(values, words);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if avx512::takes(values) {
        // SAFETY: as above.
        return unsafe { avx512::rotate_back(values, words) };
    }
    transform(values);
    flip_signs(values, words);
}

fn check_length(values: &[f32]) {
    assert!(values.len().is_power_of_two(), "the length {} is not a power of two", values.len());
}

fn check_words(values: &[f32], words: &[u32]) {
    assert!(words.len() >= values.len().div_ceil(32), "a word for 32 elements");
}

/// The transform, without AVX-512.
fn transform(values: &mut [f32]) {
    let (groups, rest) = values.as_chunks_mut::<GROUP>();
    if groups.is_empty() {
        let mut half = 1;
        while half < rest.len() {
            for pair in rest.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                butterflies(low, high);
            }
            half *= 2;
        }
        return;
    }
    within_groups(groups);
    across_groups(values);
}

/// Transforms each group.
fn within_groups(groups: &mut [[f32; GROUP]]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        // SAFETY: as above.
        return unsafe { avx2::within_groups(groups) };
    }
    for group in groups {
        *group = within::<8>(within::<4>(within::<2>(within::<1>(*group))));
    }
}

kernel! {
    /// The rest of the transform after each group is transformed.
    fn across_groups(values: &mut [f32]) {
        let mut half = GROUP;
        // Two steps per read of the elements.
        while 4 * half <= values.len() {
            for four in values.chunks_exact_mut(4 * half) {
                let (low, high) = four.split_at_mut(2 * half);
                let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
                for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                    let (sum, difference) = (*a + *b, *a - *b);
                    let (other_sum, other_difference) = (*c + *d, *c - *d);
                    (*a, *b) = (sum + other_sum, difference + other_difference);
                    (*c, *d) = (sum - other_sum, difference - other_difference);
                }
            }
            half *= 4;
        }
        if half < values.len() {
            let (low, high) = values.split_at_mut(half);
            butterflies(low, high);
        }
    }
}

#[inline(always)]
fn butterflies(low: &mut [f32], high: &mut [f32]) {
    for (a, b) in low.iter_mut().zip(high) {
        (*a, *b) = (*a + *b, *a - *b);
    }
}

/// Sums and differences of the elements that are `HALF` apart.
#[inline(always)]
fn within<const HALF: usize>(group: [f32; GROUP]) -> [f32; GROUP] {
    core::array::from_fn(|at| {
        let other = group[at ^ HALF];
        if at & HALF == 0 { group[at] + other } else { other - group[at] }
    })
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    /// Elements of a register.
    const LANES: usize = 16;

    /// Whether these kernels are used: for at least a register of elements.
    pub(super) fn takes(values: &[f32]) -> bool {
        values.len() >= LANES && super::super::level::has_avx512()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn hadamard(values: &mut [f32]) {
        passes(values, |_, x| x, |_, x| x);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn rotate(values: &mut [f32], words: &[u32]) {
        passes(values, |at, x| flipped(x, words, at), |_, x| x);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn rotate_back(values: &mut [f32], words: &[u32]) {
        passes(values, |_, x| x, |at, x| flipped(x, words, at));
    }

    /// The elements from index `at` on, with the signs of `words` flipped.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn flipped(x: __m512, words: &[u32], at: usize) -> __m512 {
        let bits = (words[at / 32] >> (at % 32)) as u16;
        let (x, sign) = (_mm512_castps_si512(x), _mm512_set1_epi32(i32::MIN));
        _mm512_castsi512_ps(_mm512_mask_xor_epi32(x, bits, x, sign))
    }

    /// The transform in as few passes as sixteen registers allow: two for 4096 elements. The first
    /// pass applies `before` to the registers it loads, the last `after` to the registers it
    /// stores, each with the index of its first element.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn passes(
        values: &mut [f32],
        before: impl Fn(usize, __m512) -> __m512,
        after: impl Fn(usize, __m512) -> __m512,
    ) {
        match values.len() / LANES {
            1 => return blocks::<1>(values, before, after),
            2 => return blocks::<2>(values, before, after),
            4 => return blocks::<4>(values, before, after),
            8 => return blocks::<8>(values, before, after),
            16 => return blocks::<16>(values, before, after),
            _ => blocks::<16>(values, before, |_, x| x),
        }
        let mut done = 16 * LANES;
        // A pass combines elements `done` apart, then twice as far, and so on.
        while values.len() / done > 16 {
            across::<16>(values, done, |_, x| x);
            done *= 16;
        }
        match values.len() / done {
            2 => across::<2>(values, done, after),
            4 => across::<4>(values, done, after),
            8 => across::<8>(values, done, after),
            _ => across::<16>(values, done, after),
        }
    }

    /// Transforms each block of `REGISTERS` registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn blocks<const REGISTERS: usize>(
        values: &mut [f32],
        before: impl Fn(usize, __m512) -> __m512,
        after: impl Fn(usize, __m512) -> __m512,
    ) {
        for (number, block) in values.chunks_exact_mut(REGISTERS * LANES).enumerate() {
            let (first, start) = (number * REGISTERS * LANES, block.as_mut_ptr());
            let mut x = [_mm512_setzero_ps(); REGISTERS];
            for (at, x) in x.iter_mut().enumerate() {
                // SAFETY: the block holds the floats of each register.
                let loaded = unsafe { _mm512_loadu_ps(start.add(at * LANES)) };
                *x = within(before(first + at * LANES, loaded));
            }
            butterflies(&mut x);
            for (at, x) in x.iter().enumerate() {
                let stored = after(first + at * LANES, *x);
                // SAFETY: as above.
                unsafe { _mm512_storeu_ps(start.add(at * LANES), stored) };
            }
        }
    }

    /// Combines elements at the distance `apart`, a multiple of a register's length, and at
    /// multiples of it up to half of `REGISTERS` times.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn across<const REGISTERS: usize>(
        values: &mut [f32],
        apart: usize,
        after: impl Fn(usize, __m512) -> __m512,
    ) {
        assert!(apart.is_multiple_of(LANES), "columns are whole registers");
        for (number, block) in values.chunks_exact_mut(REGISTERS * apart).enumerate() {
            let (first, start) = (number * REGISTERS * apart, block.as_mut_ptr());
            for column in (0..apart).step_by(LANES) {
                let mut x = [_mm512_setzero_ps(); REGISTERS];
                for (at, x) in x.iter_mut().enumerate() {
                    // SAFETY: a column and the registers at multiples of `apart` behind it are
                    // within the block.
                    *x = unsafe { _mm512_loadu_ps(start.add(column + at * apart)) };
                }
                butterflies(&mut x);
                for (at, x) in x.iter().enumerate() {
                    let stored = after(first + column + at * apart, *x);
                    // SAFETY: as above.
                    unsafe { _mm512_storeu_ps(start.add(column + at * apart), stored) };
                }
            }
        }
    }

    /// The transform across registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn butterflies<const REGISTERS: usize>(x: &mut [__m512; REGISTERS]) {
        // One loop for each distance, so the compiler unrolls them and keeps `x` in registers.
        combine::<REGISTERS, 1>(x);
        combine::<REGISTERS, 2>(x);
        combine::<REGISTERS, 4>(x);
        combine::<REGISTERS, 8>(x);
    }

    /// Sums and differences of registers that are `HALF` apart.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn combine<const REGISTERS: usize, const HALF: usize>(x: &mut [__m512; REGISTERS]) {
        for pair in x.chunks_exact_mut(2 * HALF) {
            let (lows, highs) = pair.split_at_mut(HALF);
            for (low, high) in lows.iter_mut().zip(highs) {
                (*low, *high) = (_mm512_add_ps(*low, *high), _mm512_sub_ps(*low, *high));
            }
        }
    }

    /// The transform of the elements of a register: of each pair the sum in the lower place, the
    /// difference in the higher.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn within(x: __m512) -> __m512 {
        let x = step(x, _mm512_permute_ps::<0b10_11_00_01>(x), 0xaaaa);
        let x = step(x, _mm512_permute_ps::<0b01_00_11_10>(x), 0xcccc);
        let x = step(x, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x), 0xf0f0);
        step(x, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x), 0xff00)
    }

    /// `other + x`, or `other − x` in the higher places. The product is exact, so it rounds like a
    /// difference.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn step(x: __m512, other: __m512, higher: __mmask16) -> __m512 {
        let one = _mm512_set1_ps(1.0);
        let signs = _mm512_mask_blend_ps(higher, one, _mm512_set1_ps(-1.0));
        _mm512_fmadd_ps(x, signs, other)
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    /// As the scalar loop: of each pair the sum in the lower place, the difference in the higher.
    #[target_feature(enable = "avx2")]
    pub(super) fn within_groups(groups: &mut [[f32; 16]]) {
        for group in groups {
            // SAFETY: the group holds the sixteen floats that are read, and then written.
            unsafe {
                let low = within_eight(_mm256_loadu_ps(group.as_ptr()));
                let high = within_eight(_mm256_loadu_ps(group.as_ptr().add(8)));
                _mm256_storeu_ps(group.as_mut_ptr(), _mm256_add_ps(low, high));
                _mm256_storeu_ps(group.as_mut_ptr().add(8), _mm256_sub_ps(low, high));
            }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn within_eight(x: __m256) -> __m256 {
        let x = step::<0b1010_1010>(x, _mm256_permute_ps::<0b10_11_00_01>(x));
        let x = step::<0b1100_1100>(x, _mm256_permute_ps::<0b01_00_11_10>(x));
        step::<0b1111_0000>(x, _mm256_permute2f128_ps::<1>(x, x))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn step<const HIGHER: i32>(x: __m256, other: __m256) -> __m256 {
        _mm256_blend_ps::<HIGHER>(_mm256_add_ps(x, other), _mm256_sub_ps(other, x))
    }
}

kernel! {
    /// Flips the sign of element i if bit i mod 32 of word i / 32 is 1.
    fn flip_signs(values: &mut [f32], words: &[u32]) {
        for (values, word) in values.chunks_mut(32).zip(words) {
            for (at, value) in (0u32..).zip(values) {
                *value = f32::from_bits(value.to_bits() ^ (word >> at & 1) << 31);
            }
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
        flip_signs(&mut values, &[0b111, 2]);
        assert_eq!(values[..4], [-1.0, 2.0, -1.0, 1.0]);
        assert_eq!(values[31..], [1.0, 1.0, -1.0]);
    }

    #[test]
    fn rotations_are_flips_and_a_transform() {
        for bits in 0..=13 {
            let values = numbers(1 << bits);
            let words: Vec<u32> = (1u32..=256).map(|at| at.wrapping_mul(2_654_435_761)).collect();
            let flipped = |values: &[f32]| -> Vec<f32> {
                let flip = |(at, x): (usize, &f32)| {
                    if words[at / 32] >> (at % 32) & 1 == 1 { -x } else { *x }
                };
                values.iter().enumerate().map(flip).collect()
            };
            let mut expected = flipped(&values);
            transform(&mut expected);
            let mut found = values.clone();
            rotate(&mut found, &words);
            assert_eq!(found, expected);
            transform(&mut expected);
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
