//! Counter-based random numbers, keyed by (seed, tensor, rank, step).
//!
//! A draw is a pure function of its key and its index, so a resumed, re-ordered or re-distributed run has the same
//! draws as an uninterrupted one. The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
//! as easy as 1, 2, 3", SC 2011).

use gradwire_bits::kernels;

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
    /// first word, then stream and rank, then the step's lower half (its upper half joins the key),
    /// so that streams of one run never overlap within 2^34 draws.
    pub fn new(seed: u64, tensor: u64, rank: u32, step: u64, stream: u32) -> Self {
        let key = mix(seed ^ mix(tensor ^ mix((step >> 32) ^ (u64::from(stream) << 32))));
        Self { key: [key as u32, (key >> 32) as u32], counter: [0, stream, rank, step as u32] }
    }

    /// Fills `out` with uniform 32-bit words. The next call continues at the next block of four.
    pub fn fill(&mut self, out: &mut [u32]) {
        kernels::philox4x32(self.key, self.counter, out);
        self.counter[0] = self.counter[0].wrapping_add(out.len().div_ceil(4) as u32);
    }

    /// Fills `out` with the words of the stream from index `first` on, so that draw i belongs to element i, whatever
    /// the division of a tensor into blocks. Does not advance [`fill`](Self::fill).
    pub fn fill_from(&self, first: usize, out: &mut [u32]) {
        let mut counter = self.counter;
        let block = (u64::from(counter[1]) << 32 | u64::from(counter[0])) + first as u64 / 4;
        counter[0] = block as u32;
        counter[1] = (block >> 32) as u32;
        let (skipped, mut edge) = (first % 4, [0; 4]);
        if skipped == 0 {
            return kernels::philox4x32(self.key, counter, out);
        }
        kernels::philox4x32(self.key, counter, &mut edge);
        let (head, rest) = out.split_at_mut(out.len().min(4 - skipped));
        head.copy_from_slice(&edge[skipped..skipped + head.len()]);
        counter[0] = counter[0].wrapping_add(1);
        counter[1] = counter[1].wrapping_add(u32::from(counter[0] == 0));
        kernels::philox4x32(self.key, counter, rest);
    }

    /// A uniform 64-bit word.
    pub fn next_u64(&mut self) -> u64 {
        let mut words = [0; 2];
        self.fill(&mut words);
        u64::from(words[0]) | u64::from(words[1]) << 32
    }

    /// A uniform number in `0..bound`; the bias of at most bound / 2^64 is beyond measuring.
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
    fn filling_continues_at_the_next_block() {
        let mut rng = Rng::new(1, 2, 3, 4, 5);
        let all = words(&rng, 12);
        let (mut a, mut b) = ([0; 5], [0; 4]);
        rng.fill(&mut a);
        rng.fill(&mut b);
        assert_eq!((&a[..], &b[..]), (&all[..5], &all[8..12]));
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
