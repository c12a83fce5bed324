//! Philox4x32-10, a counter-based generator of random words.
//!
//! Ten rounds of two 32-bit multiplications turn a 128-bit counter under a 64-bit key into four
//! words. No block needs another one, so a kernel computes many at a time.
//!
//! Reference: Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

use core::array::from_fn;

use fearless_simd::prelude::*;

use super::{cases, kernel};

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// The most words that are computed faster block by block.
const FEW: usize = 12;

/// Fills `out` with the blocks of successive counters from `counter`, four words each; the last may
/// be truncated. The first word of the counter is incremented and carries into the second.
pub fn philox4x32(key: [u32; 2], counter: [u32; 4], out: &mut [u32]) {
    // Before the choice of an instruction set, which takes as long as a block.
    if out.len() <= FEW {
        return block_by_block(key, counter, out);
    }
    many_blocks(key, counter, out);
}

kernel! {
    /// Fills `out` as [`philox4x32`] does.
    fn many_blocks(simd, key: [u32; 2], counter: [u32; 4], out: &mut [u32]) {
        // As many as fit in the registers, because their multiplications do not wait for each
        // other.
        match S::u64s::LEN {
            8 => fill::<S, 4>(simd, key, counter, out),
            _ => fill::<S, 2>(simd, key, counter, out),
        }
    } plain {
        block_by_block(key, counter, out);
    }
}

fn block_by_block(key: [u32; 2], counter: [u32; 4], out: &mut [u32]) {
    for (block, words) in (0..).zip(out.chunks_mut(4)) {
        let (mut state, mut key) = (after(counter, block), key);
        for _ in 0..ROUNDS {
            let [x, y, z, w] = state;
            let a = u64::from(x) * u64::from(MULTIPLIERS[0]);
            let b = u64::from(z) * u64::from(MULTIPLIERS[1]);
            let high = |product: u64| (product >> 32) as u32;
            state = [high(b) ^ y ^ key[0], b as u32, high(a) ^ w ^ key[1], a as u32];
            key = next(key);
        }
        words.iter_mut().zip(state).for_each(|(out, word)| *out = word);
    }
}

/// The key of the next round.
#[inline(always)]
fn next(key: [u32; 2]) -> [u32; 2] {
    from_fn(|i| key[i].wrapping_add(WEYL[i]))
}

/// The counter after `blocks` blocks.
#[inline(always)]
fn after(counter: [u32; 4], blocks: u64) -> [u32; 4] {
    let count = u64::from(counter[0]) | u64::from(counter[1]) << 32;
    let count = count.wrapping_add(blocks);
    [count as u32, (count >> 32) as u32, counter[2], counter[3]]
}

/// Fills `out`; computes `TOGETHER` registers of blocks at a time. A word of a block is the lower
/// half of 64 bits. The upper halves do not matter.
#[inline(always)]
fn fill<S: Simd, const TOGETHER: usize>(
    simd: S,
    key: [u32; 2],
    counter: [u32; 4],
    out: &mut [u32],
) {
    let blocks = TOGETHER * S::u64s::LEN;
    let wide = |word: u32| S::u64s::splat(simd, u64::from(word));
    let (mut keys, mut round_key) = ([[wide(0); 2]; ROUNDS], key);
    for keys in &mut keys {
        *keys = round_key.map(wide);
        round_key = next(round_key);
    }
    let multipliers = MULTIPLIERS.map(wide);
    let [.., z, w] = counter.map(wide);
    let first = u64::from(counter[0]) | u64::from(counter[1]) << 32;
    let mut count = S::u64s::splat(simd, first) + S::u64s::from_fn(simd, |at| at as u64);
    let mut states = [[count; 4]; TOGETHER];
    for (group, words) in (0..).zip(out.chunks_mut(4 * blocks)) {
        if words.len() <= FEW {
            return block_by_block(key, after(counter, group * blocks as u64), words);
        }
        for state in &mut states {
            *state = [count, count >> 32, z, w];
            count += S::u64s::LEN as u64;
        }
        for keys in &keys {
            for state in &mut states {
                *state = round::<S>(*state, multipliers, keys);
            }
        }
        for (state, words) in states.iter().zip(words.chunks_mut(4 * S::u64s::LEN)) {
            put::<S>(simd, *state, words);
        }
    }
}

#[inline(always)]
fn round<S: Simd>(
    [x, y, z, w]: [S::u64s; 4],
    multipliers: [S::u64s; 2],
    keys: &[S::u64s; 2],
) -> [S::u64s; 4] {
    let (a, b) = (product::<S>(x, multipliers[0]), product::<S>(z, multipliers[1]));
    [b >> 32 ^ y ^ keys[0], b, a >> 32 ^ w ^ keys[1], a]
}

/// The products of the lower halves.
#[inline(always)]
fn product<S: Simd>(x: S::u64s, by: S::u64s) -> S::u64s {
    if cfg!(target_arch = "aarch64") {
        // NEON has no product of 64 bits.
        let [x, by] = [x, by].map(|words| words.bitcast::<S::u32s>());
        return x.unzip_low(x).widening_mul(by.unzip_low(by)).0;
    }
    // The upper halves of `by` are 0.
    (x & 0xffff_ffff) * by
}

/// Writes the blocks of a register, or the first of them.
#[inline(always)]
fn put<S: Simd>(simd: S, [x, y, z, w]: [S::u64s; 4], words: &mut [u32]) {
    let odd = S::mask32s::from_bitmask(simd, 0xaaaa);
    let join = |low: S::u64s, high: S::u64s| -> S::u64s {
        let (low, high) = (low.bitcast::<S::u32s>(), high.bitcast::<S::u32s>());
        odd.select(high.slide_within_blocks::<3>(high), low).bitcast()
    };
    let (xy, zw) = (join(x, y), join(z, w));
    let halves = [xy.zip_low(zw), xy.zip_high(zw)].map(|half| half.bitcast::<S::u32s>());
    for (half, words) in halves.iter().zip(words.chunks_mut(S::u32s::LEN)) {
        if words.len() == S::u32s::LEN {
            half.store_slice(words);
        } else {
            words.copy_from_slice(&half.as_slice()[..words.len()]);
        }
    }
}

cases![("philox4x32", |input, output| {
    let [first, second] = [input.word(2), input.word(3)];
    // Any counter, and counters that carry into the second word and past it.
    let carry = u32::MAX - 3;
    for start in [[input.word(0), input.word(1)], [carry, first], [carry, u32::MAX]] {
        let mut out = input.zeros();
        let counter = [start[0], start[1], first, second];
        philox4x32([input.x.to_bits(), input.y.to_bits()], counter, &mut out);
        output.bits(out.iter().copied());
    }
}),];

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
