//! Counter-based random numbers, keyed by (seed, tensor, rank, step).
//!
//! A draw is a pure function of its key and index, so a resumed, re-ordered or re-distributed run
//! has the same draws as an uninterrupted one. The generator is Philox4x32-10 (Salmon, Moraes,
//! Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

use gradwire_bits::kernels::{self, SHARING};

/// Elements whose words for rounding are drawn at a time.
const ROUNDED: usize = 4096;
/// Philox is fastest from the start of a block of this many words, and for a multiple of it.
const PHILOX_BLOCK: usize = 4;
const PHILOX_GROUP: usize = 64;
/// Room for the elements' own bytes, four to a word, and for the shared bits of groups, two to a
/// word.
const OWN: usize = ROUNDED / 4 + PHILOX_GROUP;
const SHARED: usize = ROUNDED / SHARING / 2 + PHILOX_GROUP;
const SCRATCH: usize = OWN + SHARED;

/// A stream of random words. Cheap to create and to copy.
#[derive(Debug, Clone)]
pub struct Rng {
    key: [u32; 2],
    counter: [u32; 4],
}

impl Rng {
    /// The stream of one tensor, rank, step and purpose.
    ///
    /// Seed and tensor are mixed into the 64-bit key; the counter holds the block index in its
    /// first word, then stream and rank, then the step's lower half (its upper half joins the key).
    /// So streams of one run never overlap within 2^34 draws.
    pub fn new(seed: u64, tensor: u64, rank: u32, step: u64, stream: u32) -> Self {
        let key = mix(seed ^ mix(tensor ^ mix((step >> 32) ^ (u64::from(stream) << 32))));
        Self { key: [key as u32, (key >> 32) as u32], counter: [0, stream, rank, step as u32] }
    }

    /// Fills `out` with uniform 32-bit words. The next call continues at the next block of four.
    pub fn fill(&mut self, out: &mut [u32]) {
        kernels::philox4x32(self.key, self.counter, out);
        self.counter = after(self.counter, out.len().div_ceil(4) as u64);
    }

    /// Fills `out` with the words of the stream from index `first` on. So draw i belongs to element
    /// i, however a tensor is divided into blocks. Does not advance [`fill`](Self::fill).
    pub fn fill_from(&self, first: usize, out: &mut [u32]) {
        let counter = after(self.counter, first as u64 / 4);
        let (skipped, mut edge) = (first % 4, [0; 4]);
        if skipped == 0 {
            return kernels::philox4x32(self.key, counter, out);
        }
        kernels::philox4x32(self.key, counter, &mut edge);
        let (head, rest) = out.split_at_mut(out.len().min(4 - skipped));
        head.copy_from_slice(&edge[skipped..skipped + head.len()]);
        kernels::philox4x32(self.key, after(counter, 1), rest);
    }

    /// Fills `out` with words for the stochastic rounding of the elements from index `first` on, at
    /// less than a third of the draws of [`fill_from`](Self::fill_from). Does not advance
    /// [`fill`](Self::fill).
    ///
    /// The upper 8 bits of word i are byte i of this stream, little-endian. The next 16 are
    /// half-word ⌊i / 16⌋, lower half first, of a second stream, which has the same key and the
    /// highest bit of the second counter word flipped. The lowest 8 are 0. So the upper 24 bits of
    /// each word are uniform, and an element is rounded up with the same probability as by a
    /// separate word.
    ///
    /// The 16 elements of a group share 16 bits; two of them depend on each other only if the upper
    /// 8 bits of a word do not already decide the rounding. This adds nothing to the expected
    /// squared error, and at most 6 % to the variance of a sum. If all elements are rounded up with
    /// the same probability, from 0.1 to 0.9, it adds less than 0.1 %.
    pub fn fill_rounding(&self, first: usize, out: &mut [u32]) {
        self.fill_rounding_in(&mut [0; SCRATCH], first, out);
    }

    /// The words of [`fill_rounding`](Self::fill_rounding) for `len` elements from index `first`
    /// on, at the beginning of a buffer that keeps its allocation.
    pub fn rounding_words<'a>(
        &self,
        first: usize,
        len: usize,
        buffer: &'a mut Vec<u32>,
    ) -> &'a [u32] {
        buffer.resize(buffer.len().max(len + SCRATCH), 0);
        let (words, scratch) = buffer.split_at_mut(len);
        self.fill_rounding_in(scratch, first, words);
        words
    }

    /// [`fill_rounding`](Self::fill_rounding) with working memory of [`SCRATCH`] words.
    fn fill_rounding_in(&self, scratch: &mut [u32], first: usize, out: &mut [u32]) {
        for (piece, out) in out.chunks_mut(ROUNDED).enumerate() {
            self.fill_rounding_piece(scratch, first + piece * ROUNDED, out);
        }
    }

    /// The same for at most [`ROUNDED`] elements.
    fn fill_rounding_piece(&self, scratch: &mut [u32], first: usize, out: &mut [u32]) {
        let (own, shared) = scratch.split_at_mut(OWN);
        let own = self.words(first / 4, (first % 4 + out.len()).div_ceil(4), own);
        own.iter_mut().for_each(|word| *word = word.to_le());
        let own = &bytemuck::cast_slice(own)[first % 4..];

        let group = first / SHARING;
        let groups = (first % SHARING + out.len()).div_ceil(SHARING);
        let shared = self.second().words(group / 2, (group % 2 + groups).div_ceil(2), shared);
        if cfg!(target_endian = "big") {
            shared.iter_mut().for_each(|word| *word = word.rotate_left(16));
        }
        let halves: &[u16] = &bytemuck::cast_slice(shared)[group % 2..];

        // The rest of a group, then whole ones.
        let (head, rest) = out.split_at_mut(out.len().min(SHARING - first % SHARING));
        kernels::spread(own, halves, head);
        kernels::spread(&own[head.len()..], &halves[1..], rest);
    }

    /// `len` words of the stream from index `first` on, drawn into `buffer` with a few more, for
    /// speed.
    fn words<'a>(&self, first: usize, len: usize, buffer: &'a mut [u32]) -> &'a mut [u32] {
        let before = first % PHILOX_BLOCK;
        let drawn = match before + len {
            few @ ..PHILOX_GROUP => few,
            many => many.next_multiple_of(PHILOX_GROUP),
        };
        self.fill_from(first - before, &mut buffer[..drawn]);
        &mut buffer[before..before + len]
    }

    /// The stream of the bits that elements share.
    fn second(&self) -> Self {
        let mut second = self.clone();
        second.counter[1] ^= 1 << 31;
        second
    }

    /// A uniform 64-bit word.
    pub fn next_u64(&mut self) -> u64 {
        let mut words = [0; 2];
        self.fill(&mut words);
        u64::from(words[0]) | u64::from(words[1]) << 32
    }

    /// A uniform number in `0..bound`; the bias, at most bound / 2^64, is not measurable.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no elements to draw");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A uniform number in [0, 1), of 24 bits.
    pub fn uniform(&mut self) -> f32 {
        let mut word = [0];
        self.fill(&mut word);
        (word[0] >> 8) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// A normal number of mean 0 and variance 1, by the method of Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let (radius, angle) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * angle).cos()
    }
}

/// The counter after this many blocks. Its first word carries into the second, as in the generator.
fn after(counter: [u32; 4], blocks: u64) -> [u32; 4] {
    let block = (u64::from(counter[1]) << 32 | u64::from(counter[0])).wrapping_add(blocks);
    [block as u32, (block >> 32) as u32, counter[2], counter[3]]
}

/// The finaliser of SplitMix64: a bijection of 64-bit words that spreads every bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(rng: &Rng, len: usize) -> Vec<u32> {
        let mut words = vec![0; len];
        rng.clone().fill(&mut words);
        words
    }

    #[test]
    fn normal_numbers_have_the_moments_of_the_normal_distribution() {
        let mut rng = Rng::new(1, 2, 3, 4, 5);
        let values: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let moment = |power: i32| values.iter().map(|x| x.powi(power)).sum::<f64>() / 1e5;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.02);
        assert!(moment(3).abs() < 0.06 && (moment(4) - 3.0).abs() < 0.15);
    }

    #[test]
    fn every_part_of_the_key_changes_the_stream() {
        let base = words(&Rng::new(1, 2, 3, 4, 5), 8);
        for other in [
            Rng::new(9, 2, 3, 4, 5),
            Rng::new(1, 9, 3, 4, 5),
            Rng::new(1, 2, 9, 4, 5),
            Rng::new(1, 2, 3, 9, 5),
            Rng::new(1, 2, 3, 4 | 1 << 32, 5),
            Rng::new(1, 2, 3, 4, 9),
        ] {
            assert_ne!(words(&other, 8), base);
        }
        assert_eq!(words(&Rng::new(1, 2, 3, 4, 5), 8), base);
    }

    #[test]
    fn the_mixer_is_the_published_one() {
        // SplitMix64 with seed 1234567: its first two outputs.
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
        let next = 1_234_567u64.wrapping_add(0x9e37_79b9_7f4a_7c15);
        assert_eq!(mix(next), 3_203_168_211_198_807_973);
    }

    #[test]
    fn words_can_be_drawn_from_any_index() {
        let rng = Rng::new(1, 2, 3, 4, 5);
        let all = words(&rng, 100);
        for first in 0..40 {
            for len in [0, 1, 2, 3, 4, 5, 17, 60] {
                let mut part = vec![0; len];
                rng.fill_from(first, &mut part);
                assert_eq!(part, all[first..first + len], "{first}, {len}");
            }
        }
    }

    #[test]
    fn words_for_rounding_have_a_byte_of_their_own_and_bits_of_their_group() {
        let rng = Rng::new(1, 2, 3, 4, 5);
        let own = words(&rng, 2500);
        let mut shared = vec![0; 320];
        Rng { counter: [0, 5 | 1 << 31, 3, 4], ..rng }.fill(&mut shared);
        let expected = |i: usize| {
            let byte = own[i / 4].to_le_bytes()[i % 4];
            let group = i / 16;
            let low = [shared[group / 2] & 0xffff, shared[group / 2] >> 16][group % 2];
            u32::from(byte) << 24 | low << 8
        };
        let all: Vec<u32> = (0..10_000).map(expected).collect();
        for first in [0, 1, 2, 15, 16, 17, 100, 128, 4095, 4096, 4097] {
            for len in [0, 1, 3, 14, 16, 17, 200, 4096, 5000] {
                let mut part = vec![7; len];
                rng.fill_rounding(first, &mut part);
                assert_eq!(part, all[first..first + len], "{first}, {len}");
            }
        }
    }

    #[test]
    fn sums_of_rounded_elements_vary_as_those_of_independent_ones() {
        // Rounded up with a separate probability for each element, or the same for all.
        let chances = |chance: fn(u32) -> u32| (0..4096).map(chance).collect::<Vec<u32>>();
        let various = chances(|i| i.wrapping_mul(2_654_435_761));
        for chances in [various, chances(|_| 0x4000_1234), chances(|_| 0x0040_0000)] {
            let p = |chance: &u32| f64::from(chance >> 8) / 16_777_216.0;
            let expected: f64 = chances.iter().map(p).sum();
            let variance: f64 = chances.iter().map(p).map(|p| p * (1.0 - p)).sum();
            let (mut total, mut squares) = (0.0, 0.0);
            const DRAWS: u64 = 4000;
            for step in 0..DRAWS {
                let mut words = [0; 4096];
                Rng::new(7, 8, 9, step, 0).fill_rounding(0, &mut words);
                let up =
                    words.iter().zip(&chances).filter(|(word, chance)| *word >> 8 < *chance >> 8);
                let off = up.count() as f64 - expected;
                (total, squares) = (total + off, squares + off * off);
            }
            // Five standard deviations of the mean, and of the variance of a normal number.
            let draws = DRAWS as f64;
            assert!(total.abs() < 5.0 * (variance * draws).sqrt(), "{total}");
            let ratio = squares / draws / variance;
            assert!((ratio - 1.0).abs() < 5.0 * (2.0 / draws).sqrt(), "{ratio}");
        }
    }

    #[test]
    fn filling_continues_at_the_next_block() {
        let mut rng = Rng::new(1, 2, 3, 4, 5);
        let all = words(&rng, 12);
        let (mut a, mut b) = ([0; 5], [0; 4]);
        rng.fill(&mut a);
        rng.fill(&mut b);
        assert_eq!((&a[..], &b[..]), (&all[..5], &all[8..12]));
    }

    #[test]
    fn the_block_after_the_last_of_a_word_is_counted_in_the_next_word() {
        let of = |counter| Rng { counter, ..Rng::new(1, 2, 3, 4, 5) };
        let mut rng = of([u32::MAX, 5, 3, 4]);
        let all = words(&rng, 8);
        let (mut first, mut second, mut within) = ([0; 4], [0; 4], [0; 5]);
        rng.fill_from(3, &mut within);
        rng.fill(&mut first);
        rng.fill(&mut second);
        assert_eq!((&first[..], &second[..], &within[..]), (&all[..4], &all[4..], &all[3..]));
        assert_eq!(words(&of([0, 6, 3, 4]), 4), second);
    }

    #[test]
    fn numbers_lie_in_their_ranges() {
        let mut rng = Rng::new(0, 0, 0, 0, 0);
        let mut seen = [0; 6];
        for _ in 0..6000 {
            seen[rng.below(6) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.uniform()));
        }
        // 1000 each, five standard deviations are 144.
        assert!(seen.iter().all(|&times| (856..1144).contains(&times)), "{seen:?}");
    }
}
