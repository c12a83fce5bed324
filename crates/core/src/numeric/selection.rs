//! The k largest absolute values of a tensor, exactly or from a sample, without sorting it.

use crate::{BLOCK, Rng, Source};

/// What separates the k largest absolute values from the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// The k-th largest absolute value. All elements above it are among the k largest.
    pub value: f32,
    /// How many elements of exactly that absolute value are among the k largest.
    pub ties: usize,
}

/// Buckets of the first digit: eight bits of exponent and three of mantissa.
const FIRST_DIGIT: Digit = Digit { shift: 20, bits: 11 };
const LATER_DIGITS: [Digit; 2] = [Digit { shift: 10, bits: 10 }, Digit { shift: 0, bits: 10 }];
/// Counters are kept in so many copies, because runs of equal digits would wait for each other.
const COPIES: usize = 4;

/// A few bits of the pattern of an absolute value. Patterns order as the values do.
#[derive(Clone, Copy)]
struct Digit {
    shift: u32,
    bits: u32,
}

/// The k-th largest absolute value, `1 ≤ k ≤ source.len()`, by radix selection on the bit patterns.
///
/// One counting pass finds the bucket the value is in. What lies in that bucket is gathered in `words`
/// and selected from, if it is a small part of the tensor; else further passes count finer digits.
/// Memory beside: 32 KiB and the gathered part, at most 1/16 of the elements.
pub fn kth_largest(source: &mut Source<'_>, k: usize, words: &mut Vec<u32>) -> Threshold {
    assert!((1..=source.len()).contains(&k));
    let mut rank = k;
    let mut bucket = Bucket { prefix: 0, shift: 31 };
    let mut held = bucket.refine(source, FIRST_DIGIT, &mut rank, words);
    for digit in LATER_DIGITS {
        if held <= BLOCK.max(source.len() / 16) {
            return bucket.select(source, rank, words);
        }
        held = bucket.refine(source, digit, &mut rank, words);
    }
    Threshold { value: f32::from_bits(bucket.prefix), ties: rank }
}

/// The values whose patterns agree with `prefix` above the lowest `shift` bits.
struct Bucket {
    prefix: u32,
    shift: u32,
}

impl Bucket {
    /// Narrows the bucket to the part that holds its `rank`-th largest value, makes `rank` count
    /// within that part, and returns how many values it holds.
    fn refine(
        &mut self,
        source: &mut Source<'_>,
        digit: Digit,
        rank: &mut usize,
        words: &mut Vec<u32>,
    ) -> usize {
        let buckets = 1 << digit.bits;
        words.clear();
        words.resize(COPIES * buckets, 0);
        source.peek_blocks(|_, block| self.count(block, digit, words));
        let count = |at: usize| -> usize {
            (0..COPIES).map(|copy| words[copy * buckets + at] as usize).sum()
        };
        let mut at = buckets - 1;
        while count(at) < *rank {
            *rank -= count(at);
            at -= 1;
        }
        self.prefix |= (at as u32) << digit.shift;
        self.shift = digit.shift;
        count(at)
    }

    fn count(&self, block: &[f32], digit: Digit, words: &mut [u32]) {
        let buckets = 1usize << digit.bits;
        let mask = buckets - 1;
        let (a, rest) = words.split_at_mut(buckets);
        let (b, rest) = rest.split_at_mut(buckets);
        let (c, d) = rest.split_at_mut(buckets);
        let at = |x: f32| (pattern(x) >> digit.shift) as usize & mask;
        let (rows, tail) = block.as_chunks::<COPIES>();
        if self.shift == 31 {
            for row in rows {
                a[at(row[0])] += 1;
                b[at(row[1])] += 1;
                c[at(row[2])] += 1;
                d[at(row[3])] += 1;
            }
            tail.iter().for_each(|&x| a[at(x)] += 1);
        } else {
            for row in rows {
                a[at(row[0])] += u32::from(self.holds(row[0]));
                b[at(row[1])] += u32::from(self.holds(row[1]));
                c[at(row[2])] += u32::from(self.holds(row[2]));
                d[at(row[3])] += u32::from(self.holds(row[3]));
            }
            tail.iter().for_each(|&x| a[at(x)] += u32::from(self.holds(x)));
        }
    }

    fn holds(&self, x: f32) -> bool {
        (pattern(x) ^ self.prefix) >> self.shift == 0
    }

    /// The `rank`-th largest value of the bucket, from the gathered patterns.
    fn select(&self, source: &mut Source<'_>, rank: usize, words: &mut Vec<u32>) -> Threshold {
        words.clear();
        source.peek_blocks(|_, block| {
            for row in block.chunks(16) {
                // Most rows hold none of the bucket's values; this test is done 16 at a time.
                if row.iter().fold(false, |any, &x| any | self.holds(x)) {
                    words.extend(row.iter().filter(|&&x| self.holds(x)).map(|&x| pattern(x)));
                }
            }
        });
        let (_, &mut value, _) = words.select_nth_unstable_by(rank - 1, |a, b| b.cmp(a));
        let above = words.iter().filter(|&&word| word > value).count();
        Threshold { value: f32::from_bits(value), ties: rank - above }
    }
}

fn pattern(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// Elements of a sample lie in runs of so many, a cache line.
const RUN: usize = 16;
/// A sample holds one element of so many…
const SAMPLED: usize = 256;
/// …but no fewer than this.
const LEAST_SAMPLE: usize = 4096;

/// An estimate, from a random sample, of the k-th largest absolute value.
///
/// The sample is of 1/256 of the elements, at least 4096 or all, in runs of 16 at random places; of it
/// the value at the same relative rank is taken. It is a value that occurs in the tensor.
pub fn sampled_threshold(
    source: &mut Source<'_>,
    k: usize,
    rng: &mut Rng,
    values: &mut Vec<f32>,
) -> f32 {
    let elements = source.len();
    assert!((1..=elements).contains(&k));
    values.clear();
    let size = (elements / SAMPLED).max(LEAST_SAMPLE);
    if size >= elements {
        source.peek_blocks(|_, block| values.extend(block.iter().map(|x| x.abs())));
    } else {
        for _ in 0..size.div_ceil(RUN) {
            let start = rng.below((elements / RUN) as u64) as usize * RUN;
            source.peek(start, RUN, |run| values.extend(run.iter().map(|x| x.abs())));
        }
    }
    let size = values.len();
    let rank = (k as u128 * size as u128 / elements as u128).clamp(1, size as u128) as usize;
    *values.select_nth_unstable_by(rank - 1, |a, b| b.total_cmp(a)).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Floats, Memory};

    fn with_source<R>(values: &[f32], look: impl FnOnce(&mut Source<'_>) -> R) -> R {
        let mut scratch = vec![0.0; BLOCK];
        look(&mut Source::new(Floats::F32(values), Memory::None, None, &mut scratch).unwrap())
    }

    fn exact(values: &[f32], k: usize) -> Threshold {
        with_source(values, |source| kth_largest(source, k, &mut Vec::new()))
    }

    /// By sorting everything.
    fn sorted(values: &[f32], k: usize) -> Threshold {
        let mut all: Vec<f32> = values.iter().map(|x| x.abs()).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        let value = all[k - 1];
        Threshold { value, ties: k - all.iter().filter(|&&x| x > value).count() }
    }

    fn noise(seed: u64, len: usize) -> Vec<f32> {
        let mut words = vec![0; len];
        Rng::new(seed, 0, 0, 0, 0).fill(&mut words);
        words.iter().map(|&word| (word as i32 as f32) * 1e-9).collect()
    }

    #[test]
    fn a_small_set_worked_by_hand() {
        let values = [3.0, -5.0, 1.0, 5.0, -2.0, 5.0];
        assert_eq!(exact(&values, 1), Threshold { value: 5.0, ties: 1 });
        assert_eq!(exact(&values, 3), Threshold { value: 5.0, ties: 3 });
        assert_eq!(exact(&values, 4), Threshold { value: 3.0, ties: 1 });
        assert_eq!(exact(&values, 6), Threshold { value: 1.0, ties: 1 });
    }

    #[test]
    fn agrees_with_sorting_whatever_the_distribution() {
        let len = 3 * BLOCK + 11;
        let narrow: Vec<f32> = noise(1, len).iter().map(|x| 1.0 + x * 1e-4).collect();
        let steps: Vec<f32> = noise(2, len).iter().map(|x| (x * 4.0).round()).collect();
        let mut last_bits = noise(3, len);
        for (i, x) in last_bits.iter_mut().enumerate() {
            *x = f32::from_bits(0x3f80_0000 + (i * 7 % 900) as u32);
        }
        for values in [noise(0, len), narrow, steps, last_bits, vec![0.0; len], vec![-2.5; len]] {
            for k in [1, 2, len / 100, len / 4, len / 2, len - 1, len] {
                assert_eq!(exact(&values, k), sorted(&values, k), "k = {k}");
            }
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        let values = noise(4, LEAST_SAMPLE);
        let sampled = with_source(&values, |source| {
            sampled_threshold(source, 40, &mut Rng::new(0, 0, 0, 0, 0), &mut Vec::new())
        });
        assert_eq!(sampled, sorted(&values, 40).value);
    }

    #[test]
    fn a_sample_comes_near_the_rank() {
        let values = noise(5, 200_000);
        for seed in 0..20 {
            let threshold = with_source(&values, |source| {
                let mut rng = Rng::new(seed, 0, 0, 0, 0);
                sampled_threshold(source, 10_000, &mut rng, &mut Vec::new())
            });
            let above = values.iter().filter(|x| x.abs() >= threshold).count();
            // Rank 204 of 4096 samples: five standard deviations are ±35 %.
            assert!((6_500..13_500).contains(&above), "{above}");
        }
    }
}
