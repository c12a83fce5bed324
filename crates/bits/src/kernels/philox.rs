//! Philox4x32-10, a counter-based generator of random words.
//!
//! Ten rounds of two 32-bit multiplications turn a 128-bit counter under a 64-bit key into four
//! words. Blocks are independent of one another, so eight or sixteen are computed at a time.
//!
//! Reference: Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

use core::array::from_fn;

use super::kernel;

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const LANES: usize = 16;
/// The most blocks to compute one by one.
const FEW: usize = 3;

/// Fills `out` with the blocks of successive counters from `counter`, four words each; the last may
/// be truncated. The first word of the counter is incremented and carries into the second.
pub fn philox4x32(key: [u32; 2], counter: [u32; 4], out: &mut [u32]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if out.len() >= 4 * LANES {
        let fill = if super::level::has_avx512() {
            avx512::fill
        } else if super::level::has_avx2() {
            avx2::fill
        } else {
            return groups_of_blocks(key, counter, out);
        };
        let (groups, rest) = out.as_chunks_mut::<{ 4 * LANES }>();
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { fill(key, counter, groups) };
        return groups_of_blocks(key, advance(counter, groups.len()), rest);
    }
    groups_of_blocks(key, counter, out);
}

kernel! {
    /// Fills `out` as [`philox4x32`] does, group by group.
    fn groups_of_blocks(key: [u32; 2], counter: [u32; 4], out: &mut [u32]) {
        for (group, words) in out.chunks_mut(4 * LANES).enumerate() {
            let counter = advance(counter, group);
            if words.len() <= 4 * FEW {
                block_by_block(key, counter, words);
                continue;
            }
            let state = rounds(key, counters(counter));
            for (block, words) in words.chunks_mut(4).enumerate() {
                for (word, out) in words.iter_mut().enumerate() {
                    *out = state[word][lane(block)];
                }
            }
        }
    }
}

/// Fills `out` without the cost of a whole group.
#[inline(always)]
fn block_by_block(key: [u32; 2], counter: [u32; 4], out: &mut [u32]) {
    for (block, words) in out.chunks_mut(4).enumerate() {
        let state = rounds(key, after(counter, block).map(|word| [word]));
        for (out, [word]) in words.iter_mut().zip(state) {
            *out = word;
        }
    }
}

/// The counter after `groups` groups of blocks.
#[inline(always)]
fn advance(counter: [u32; 4], groups: usize) -> [u32; 4] {
    after(counter, groups * LANES)
}

/// The counter after `blocks` blocks.
#[inline(always)]
fn after(counter: [u32; 4], blocks: usize) -> [u32; 4] {
    let count = u64::from(counter[0]) | u64::from(counter[1]) << 32;
    let count = count.wrapping_add(blocks as u64);
    [count as u32, (count >> 32) as u32, counter[2], counter[3]]
}

/// The lane that computes a block of a group: block 4·j + i is in lane 4·i + j. A transposition
/// within the quarters of a register then brings the words of the group into order.
#[inline(always)]
fn lane(block: usize) -> usize {
    4 * (block % 4) + block / 4
}

/// The counters of a group's blocks, word by word.
#[inline(always)]
fn counters(first: [u32; 4]) -> [[u32; LANES]; 4] {
    let count = u64::from(first[0]) | u64::from(first[1]) << 32;
    // The permutation of lanes is its own inverse.
    let at = |index: usize| count.wrapping_add(lane(index) as u64);
    [
        from_fn(|index| at(index) as u32),
        from_fn(|index| (at(index) >> 32) as u32),
        [first[2]; LANES],
        [first[3]; LANES],
    ]
}

#[inline(always)]
fn rounds<const N: usize>(mut key: [u32; 2], mut state: [[u32; N]; 4]) -> [[u32; N]; 4] {
    for _ in 0..ROUNDS {
        let mut next = [[0; N]; 4];
        for lane in 0..N {
            let a = u64::from(state[0][lane]) * u64::from(MULTIPLIERS[0]);
            let b = u64::from(state[2][lane]) * u64::from(MULTIPLIERS[1]);
            next[0][lane] = (b >> 32) as u32 ^ state[1][lane] ^ key[0];
            next[1][lane] = b as u32;
            next[2][lane] = (a >> 32) as u32 ^ state[3][lane] ^ key[1];
            next[3][lane] = a as u32;
        }
        state = next;
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    state
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;
    use core::array::from_fn;

    use super::{LANES, MULTIPLIERS, ROUNDS, WEYL};

    /// The same word of eight blocks, each in the lower half of 64 bits, as in `avx2`.
    type Words = __m512i;

    /// Groups of eight blocks that are computed together, because their multiplications do not wait
    /// for each other.
    const TOGETHER: usize = 4;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn fill(key: [u32; 2], counter: [u32; 4], groups: &mut [[u32; 4 * LANES]]) {
        let wide = |word: u32| _mm512_set1_epi64(i64::from(word));
        let keys: [[Words; 2]; ROUNDS] = from_fn(|round| {
            from_fn(|i| wide(key[i].wrapping_add(WEYL[i].wrapping_mul(round as u32))))
        });
        let multipliers = MULTIPLIERS.map(wide);
        let first = u64::from(counter[0]) | u64::from(counter[1]) << 32;
        let eight = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
        let mut count = _mm512_add_epi64(_mm512_set1_epi64(first as i64), eight);
        let eights = groups.as_flattened_mut().as_chunks_mut().0;
        for eights in eights.chunks_mut(TOGETHER) {
            let mut states: [[Words; 4]; TOGETHER] = from_fn(|_| {
                let high = _mm512_srli_epi64::<32>(count);
                let state = [count, high, wide(counter[2]), wide(counter[3])];
                count = _mm512_add_epi64(count, wide(8));
                state
            });
            for keys in &keys {
                for state in &mut states {
                    *state = round(*state, multipliers, keys);
                }
            }
            // The last may be fewer.
            for (state, words) in states.into_iter().zip(eights) {
                put(state, words);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn round([x, y, z, w]: [Words; 4], multipliers: [Words; 2], keys: &[Words; 2]) -> [Words; 4] {
        let (a, b) = (_mm512_mul_epu32(x, multipliers[0]), _mm512_mul_epu32(z, multipliers[1]));
        let [x, z] = [(b, y, keys[0]), (a, w, keys[1])].map(|(product, word, key)| {
            // The exclusive or of all three.
            _mm512_ternarylogic_epi64::<0b1001_0110>(_mm512_srli_epi64::<32>(product), word, key)
        });
        [x, b, z, a]
    }

    /// Writes eight blocks.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn put([x, y, z, w]: [Words; 4], words: &mut [u32; 32]) {
        let join = |low, high| {
            _mm512_mask_blend_epi32(0b1010_1010_1010_1010, low, _mm512_slli_epi64::<32>(high))
        };
        let (xy, zw) = (join(x, y), join(z, w));
        // Blocks 0, 2, 4 and 6, and blocks 1, 3, 5 and 7.
        let (even, odd) = (_mm512_unpacklo_epi64(xy, zw), _mm512_unpackhi_epi64(xy, zw));
        let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        // SAFETY: the array holds the 32 words that are written.
        unsafe {
            let end = words.as_mut_ptr();
            _mm512_storeu_si512(end.cast(), _mm512_permutex2var_epi64(even, first, odd));
            _mm512_storeu_si512(end.add(16).cast(), _mm512_permutex2var_epi64(even, last, odd));
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;
    use core::array::from_fn;

    use super::{LANES, MULTIPLIERS, ROUNDS, WEYL};

    /// The same word of four blocks, each in the lower half of 64 bits. The upper halves do not
    /// matter: multiplications and `put` ignore them.
    type Words = __m256i;

    #[target_feature(enable = "avx2")]
    pub(super) fn fill(key: [u32; 2], counter: [u32; 4], groups: &mut [[u32; 4 * LANES]]) {
        let wide = |word: u32| _mm256_set1_epi64x(i64::from(word));
        let keys: [[Words; 2]; ROUNDS] = from_fn(|round| {
            from_fn(|i| wide(key[i].wrapping_add(WEYL[i].wrapping_mul(round as u32))))
        });
        let multipliers = MULTIPLIERS.map(wide);
        let first = u64::from(counter[0]) | u64::from(counter[1]) << 32;
        let first = _mm256_set1_epi64x(first as i64);
        let mut count = _mm256_add_epi64(first, _mm256_setr_epi64x(0, 1, 2, 3));
        for group in groups {
            // Two groups of four at a time; their multiplications do not wait for each other.
            for words in group.as_chunks_mut::<32>().0 {
                let [low, high] = from_fn(|i| _mm256_add_epi64(count, wide(4 * i as u32)));
                count = _mm256_add_epi64(count, wide(8));
                let start = |count| {
                    [count, _mm256_srli_epi64::<32>(count), wide(counter[2]), wide(counter[3])]
                };
                let (mut low, mut high) = (start(low), start(high));
                for keys in &keys {
                    low = round(low, multipliers, keys);
                    high = round(high, multipliers, keys);
                }
                for (state, words) in [low, high].into_iter().zip(words.as_chunks_mut().0) {
                    put(state, words);
                }
            }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn round([x, y, z, w]: [Words; 4], multipliers: [Words; 2], keys: &[Words; 2]) -> [Words; 4] {
        let (a, b) = (_mm256_mul_epu32(x, multipliers[0]), _mm256_mul_epu32(z, multipliers[1]));
        let [x, z] = [(b, y, keys[0]), (a, w, keys[1])].map(|(product, word, key)| {
            _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64::<32>(product), word), key)
        });
        [x, b, z, a]
    }

    /// Writes four blocks.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn put([x, y, z, w]: [Words; 4], words: &mut [u32; 16]) {
        let join =
            |low, high| _mm256_blend_epi32::<0b1010_1010>(low, _mm256_slli_epi64::<32>(high));
        let (xy, zw) = (join(x, y), join(z, w));
        // Blocks 0 and 2, and blocks 1 and 3.
        let (even, odd) = (_mm256_unpacklo_epi64(xy, zw), _mm256_unpackhi_epi64(xy, zw));
        // SAFETY: the array holds the sixteen words that are written.
        unsafe {
            let end = words.as_mut_ptr();
            _mm256_storeu_si256(end.cast(), _mm256_permute2x128_si256::<0x20>(even, odd));
            _mm256_storeu_si256(end.add(8).cast(), _mm256_permute2x128_si256::<0x31>(even, odd));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn known_answers() {
        // From the authors' reference implementation (Random123, kat_vectors).
        let cases = [
            ([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 2], [u32::MAX; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (key, counter, words) in cases {
            let mut out = [0; 4];
            philox4x32(key, counter, &mut out);
            assert_eq!(out, words);
        }
    }

    #[test]
    fn a_long_fill_is_its_blocks_one_by_one() {
        let (key, counter) = ([7, 9], [u32::MAX - 20, 5, 1, 2]);
        let mut long = vec![0; 403];
        philox4x32(key, counter, &mut long);
        for (i, words) in long.chunks(4).enumerate() {
            let (low, carry) = counter[0].overflowing_add(i as u32);
            let mut block = [0; 4];
            block_by_block(key, [low, counter[1] + u32::from(carry), 1, 2], &mut block);
            assert_eq!(words, &block[..words.len()]);
        }
    }
}
