//! Hash of a tensor's bytes as a sum, so that changed words update it.
//!
//! The hash is Σ [`term`](state_term) over the words of 8 bytes, modulo 2^64, in two lanes. It
//! finds damage and mistakes, not attacks. With ⊕ for exclusive or, and all numbers modulo 2^64:
//!
//! - The key of word i starts as w = seed + i · 0x9e3779b97f4a7c15. With u = w + (lower half of w ·
//!   upper half of w), the key is u ⊕ (u >> 31).
//! - For the first lane, x = word ⊕ key; for the second, x = word ⊕ (key rotated left by 20 bits).
//! - The term is x + (lower half of x · upper half of x).
//!
//! A single flipped bit always changes both lanes: with a flip of bit b of one half, a term changes
//! by 2^b · (other half + 1 or other half + 2^32), which is never 0 modulo 2^64.

use fearless_simd::prelude::*;

use super::prefetch::prefetch;
use super::{cases, kernel};

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const LOWER: u64 = 0xffff_ffff;
/// Words that are asked for at once.
const BLOCK: usize = 256;

kernel! {
    /// The sum of the [terms](state_term) of all words of `bytes`, little-endian, the last one
    /// padded with zeros. The first word has the index `first`.
    pub fn state_hash(
        simd,
        bytes: &[u8],
        first: u64,
        seed: u64,
    ) -> [u64; 2] {
        if cfg!(target_arch = "x86_64") {
            // Only there the compiler multiplies halves of words in vectors.
            return plain_state_hash(bytes, first, seed);
        }
        let len = S::u64s::LEN;
        let groups = bytes.chunks_exact(16 * len);
        let (rest, done) = (groups.remainder(), (2 * len * groups.len()) as u64);
        let start = seed.wrapping_add(first.wrapping_mul(STEP));
        let weyl = |at: usize| start.wrapping_add((at as u64).wrapping_mul(STEP));
        let mut weyls = (
            S::u64s::from_fn(simd, weyl),
            S::u64s::from_fn(simd, #[inline(always)] |at| weyl(len + at)),
        );
        let step = S::u64s::splat(simd, STEP.wrapping_mul(2 * len as u64));
        let mut sums = [S::u64s::splat(simd, 0); 2];
        for group in groups {
            let (a, b) = group.split_at(8 * len);
            let words = (S::u8s::from_slice(simd, a), S::u8s::from_slice(simd, b));
            let words = (words.0.bitcast::<S::u64s>(), words.1.bitcast::<S::u64s>());
            let keys = folded_both::<S>(weyls);
            let keys = (keys.0 ^ keys.0 >> 31, keys.1 ^ keys.1 >> 31);
            let terms = folded_both::<S>((words.0 ^ keys.0, words.1 ^ keys.1));
            sums[0] += terms.0 + terms.1;
            let keys = (keys.0 << 20 | keys.0 >> 44, keys.1 << 20 | keys.1 >> 44);
            let terms = folded_both::<S>((words.0 ^ keys.0, words.1 ^ keys.1));
            sums[1] += terms.0 + terms.1;
            weyls = (weyls.0 + step, weyls.1 + step);
        }
        let [a, b] = plain_state_hash(rest, first.wrapping_add(done), seed);
        [a.wrapping_add(sums[0].reduce_sum()), b.wrapping_add(sums[1].reduce_sum())]
    } plain {
        plain_state_hash(bytes, first, seed)
    }
}

/// Words at increasing places of a tensor, before and after a change, of the same number.
#[derive(Debug, Clone, Copy)]
pub struct ChangedWords<'a> {
    /// The index of each word.
    pub indices: &'a [u64],
    /// The old words.
    pub old: &'a [u64],
    /// The new words.
    pub new: &'a [u64],
}

kernel! {
    /// The [terms](state_term) of the new words minus those of the old ones. Processes the shortest
    /// length.
    pub fn state_change(words: ChangedWords<'_>, seed: u64) -> [u64; 2] {
        let mut sums = [0u64; 2];
        let ChangedWords { indices, old, new } = words;
        for ((&index, &old), &new) in indices.iter().zip(old).zip(new) {
            let weyl = seed.wrapping_add(index.wrapping_mul(STEP));
            let [gained, lost] = [mixed(weyl, new), mixed(weyl, old)];
            for lane in [0, 1] {
                sums[lane] = sums[lane].wrapping_add(gained[lane]).wrapping_sub(lost[lane]);
            }
        }
        sums
    }
}

/// The term of the word with this index.
#[inline]
pub fn state_term(seed: u64, index: u64, word: u64) -> [u64; 2] {
    mixed(seed.wrapping_add(index.wrapping_mul(STEP)), word)
}

#[inline(always)]
fn mixed(weyl: u64, word: u64) -> [u64; 2] {
    let key = folded(weyl);
    let key = key ^ key >> 31;
    [folded(word ^ key), folded(word ^ key.rotate_left(20))]
}

/// A number plus the product of its halves.
#[inline(always)]
fn folded(x: u64) -> u64 {
    x.wrapping_add((x & LOWER) * (x >> 32))
}

/// Two vectors of numbers, each number plus the product of its halves.
#[inline(always)]
fn folded_both<S: Simd>((a, b): (S::u64s, S::u64s)) -> (S::u64s, S::u64s) {
    let (lower, upper) = a.bitcast::<S::u32s>().deinterleave(b.bitcast::<S::u32s>());
    let products = lower.widening_mul(upper);
    (a + products.0, b + products.1)
}

#[inline(always)]
fn plain_state_hash(bytes: &[u8], first: u64, seed: u64) -> [u64; 2] {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sums = [0u64; 2];
    let mut weyl = seed.wrapping_add(first.wrapping_mul(STEP));
    let mut ahead = words;
    for block in words.chunks(BLOCK) {
        ahead = ahead.get(BLOCK..).unwrap_or(&[]);
        prefetch(&ahead[..ahead.len().min(BLOCK)]);
        for word in block {
            let [a, b] = mixed(weyl, u64::from_le_bytes(*word));
            sums[0] = sums[0].wrapping_add(a);
            sums[1] = sums[1].wrapping_add(b);
            weyl = weyl.wrapping_add(STEP);
        }
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        let [a, b] = mixed(weyl, u64::from_le_bytes(word));
        sums = [sums[0].wrapping_add(a), sums[1].wrapping_add(b)];
    }
    sums
}

cases![
    ("state_hash", |input, output| {
        for first in [0, u64::from(input.word(1)) << 20] {
            output.words(&state_hash(&input.bytes(), first, input.wide(2)));
        }
    }),
    ("state_change", |input, output| {
        let words = |at: usize| input.elements(input.len, |i| input.wide(i + at));
        let [indices, old, new] = [words(0), words(2), words(4)];
        let words = ChangedWords { indices: &indices, old: &old, new: &new };
        output.words(&state_change(words, input.wide(2)));
    }),
    ("state_term", |input, output| {
        output.words(&state_term(input.wide(2), input.word(1).into(), input.word(0).into()));
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn terms_by_hand() {
        // Seed 0, index 0: the key is 0. 3 · 2^32 + 5 + 15 in both lanes.
        assert_eq!(state_term(0, 0, 3 << 32 | 5), [(3 << 32) + 20; 2]);
        // Seed 1 << 32 | 2: u = seed + 2; u >> 31 = 2; the key is 1 << 32 | 6.
        let second = (1u64 << 32 | 6).rotate_left(20);
        let product = (second & LOWER) * (second >> 32);
        assert_eq!(state_term(1 << 32 | 2, 0, 0), [(1 << 32) + 6 + 6, second + product]);
        // The index adds steps to the seed, and the last word is padded with zeros.
        let [a, b] = [state_term(9, 4, 1), state_term(9u64.wrapping_add(STEP), 4, 2)];
        let sum = [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])];
        assert_eq!(state_hash(&[1, 0, 0, 0, 0, 0, 0, 0, 2], 4, 9), sum);
        assert_eq!(state_hash(&[], 4, 9), [0, 0]);
    }

    #[test]
    fn a_change_is_the_difference_of_terms() {
        let (indices, old, new) = ([3, 9, 1 << 40], [5, 0, u64::MAX], [6, 1 << 63, 7]);
        let mut expected = [0u64; 2];
        for (at, &index) in indices.iter().enumerate() {
            let [gained, lost] = [new[at], old[at]].map(|word| state_term(77, index, word));
            for lane in [0, 1] {
                expected[lane] = expected[lane].wrapping_add(gained[lane]).wrapping_sub(lost[lane]);
            }
        }
        let words = ChangedWords { indices: &indices, old: &old, new: &new };
        assert_eq!(state_change(words, 77), expected);
    }

    /// Whether both lanes of the hashes differ.
    fn differ(a: &[u8], b: &[u8]) -> bool {
        let (a, b) = (state_hash(a, 7, 1234), state_hash(b, 7, 1234));
        a[0] != b[0] && a[1] != b[1]
    }

    #[test]
    fn damage_changes_both_lanes() {
        let random: Vec<u8> = (0..512u32).map(|at| ((at * at * 37) >> 4) as u8).collect();
        for bytes in [random, alloc::vec![0; 512], alloc::vec![0xff; 512]] {
            let mut other = bytes.clone();
            for bit in 0..8 * bytes.len() {
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(differ(&bytes, &other), "bit {bit}");
                other[bit / 8] ^= 1 << (bit % 8);
            }
            let words: Vec<u64> =
                bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let changed = |changes: &[(usize, u64)]| {
                let mut words = words.clone();
                changes.iter().for_each(|&(at, by)| words[at] = words[at].wrapping_add(by));
                let changed: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                differ(&bytes, &changed)
            };
            for (i, &a) in words.iter().enumerate() {
                for (j, &b) in words.iter().enumerate().filter(|&(j, _)| j != i) {
                    let swap = [(i, b.wrapping_sub(a)), (j, a.wrapping_sub(b))];
                    assert!(a == b || changed(&swap), "{i} and {j} swapped");
                    for unit in [1u64, 1 << 16, 1 << 32, 1 << 48] {
                        assert!(changed(&[(i, unit), (j, unit.wrapping_neg())]), "{i} to {j}");
                    }
                }
                // Second differences of keys that grow steadily are 0.
                if let [_, _, _, ..] = words[i..] {
                    assert!(changed(&[(i, 1), (i + 1, 2u64.wrapping_neg()), (i + 2, 1)]), "{i}");
                }
            }
        }
    }
}
