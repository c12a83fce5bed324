//! The k largest absolute values of a tensor, exactly or from a sample, without sorting it.

use gradwire_bits::kernels::{self, Side};

use crate::parts::part_result;
pub use crate::statistics::Threshold;
use crate::statistics::{Found, Statistics};
use crate::{BLOCK, Rng, Source, Workspace};

/// The buffers of a selection.
#[derive(Debug, Default)]
pub struct SelectionBuffers {
    /// A sample of the tensor, then the candidates for the k-th largest.
    pub candidates: Vec<f32>,
    /// How often each value of a digit occurs.
    counts: Vec<u32>,
}

/// The k-th largest absolute value, `1 ≤ k ≤ source.len()`, exactly.
///
/// A sample gives a bracket. One pass over the tensor counts the values above the bracket and
/// gathers the values inside it, a few per cent of k, to select from. If the value is outside the
/// bracket, because many values are equal or the tensor is ordered, radix selection follows. If the
/// compressor has asked for [`Statistics::KthLargest`], the value is already known.
pub fn kth_largest(source: &mut Source<'_>, k: usize, workspace: &mut Workspace) -> Threshold {
    assert!((1..=source.len()).contains(&k));
    if let Some(Found::Threshold(threshold)) = source.found(Statistics::KthLargest(k)) {
        return threshold;
    }
    let SelectionBuffers { mut candidates, mut counts } = std::mem::take(workspace.own());
    let (low, high) = bracket(source, k, &mut candidates);
    // Almost certainly enough, so the buffers soon stop growing.
    candidates.clear();
    candidates.reserve((k + source.len() / 16).min(source.len()) + 2 * BLOCK);
    let found = within(source, k, low, high, &mut candidates, workspace)
        .unwrap_or_else(|| by_digits(source, k, &mut counts));
    *workspace.own() = SelectionBuffers { candidates, counts };
    found
}

/// Bounds that almost certainly contain the k-th largest absolute value: above `low`, at most
/// `high`.
fn bracket(source: &mut Source<'_>, k: usize, values: &mut Vec<f32>) -> (f32, f32) {
    let elements = source.len();
    evenly(source, values);
    if values.len() == elements {
        return (-1.0, f32::MAX);
    }
    let rank = k as f64 * values.len() as f64 / elements as f64;
    // Six standard deviations of the rank, and 8 more, because a small rank is not normally
    // distributed.
    let room = 6.0 * rank.sqrt() + 8.0;
    let (above, below) = (rank - room, (rank + room) as usize);
    let low = if below < values.len() { nth_largest(values, below) } else { -1.0 };
    let high = if above >= 1.0 { nth_largest(values, above as usize - 1) } else { f32::MAX };
    (low, high)
}

/// Fills `values` with a sample for a bracket: evenly spaced runs, or all elements of a small
/// tensor.
pub(super) fn evenly(source: &mut Source<'_>, values: &mut Vec<f32>) {
    evenly_of(source, 0, values);
}

/// Like [`evenly`], with at least `least` elements, or all.
pub(super) fn evenly_of(source: &mut Source<'_>, least: usize, values: &mut Vec<f32>) {
    let elements = source.len();
    sample(source, elements / SAMPLED, least.max(MIN_BRACKET), values, |i, runs| {
        (i as u128 * (elements / RUN) as u128 / runs as u128) as usize
    });
}

/// The k-th largest absolute value, if it is above `low` and at most `high`. The helpers share the
/// pass.
fn within(
    source: &mut Source<'_>,
    k: usize,
    low: f32,
    high: f32,
    values: &mut Vec<f32>,
    workspace: &mut Workspace,
) -> Option<Threshold> {
    values.clear();
    let mut gathered = Gathered { above: 0, values: std::mem::take(values) };
    source.merge_parts(1, workspace, &mut gathered, |source, part| {
        gather_within(source, low, high, part);
    });
    let above = gathered.above;
    *values = gathered.values;
    let rank = k.checked_sub(above + 1).filter(|&rank| rank < values.len())?;
    let value = nth_largest(values, rank);
    let larger = values.iter().filter(|x| x.abs() > value).count();
    let equal = values.iter().filter(|x| x.abs() == value).count();
    Some(Threshold { value, equal, ties: rank + 1 - larger })
}

/// The values inside a bracket, and the number of values above it.
#[derive(Debug, Default)]
struct Gathered {
    above: usize,
    values: Vec<f32>,
}

part_result!(Gathered { above, values });

/// Appends the values above `low` and at most `high`, in absolute value, and counts those above
/// `high`.
fn gather_within(source: &mut Source<'_>, low: f32, high: f32, to: &mut Gathered) {
    source.peek_short_blocks(|_, block| {
        to.above += kernels::values_between(block, Side::Both, [low, high], &mut to.values);
    });
}

/// The k-th largest of the absolute values above `low`; there are at least k.
pub fn among(source: &mut Source<'_>, k: usize, low: f32, values: &mut Vec<f32>) -> f32 {
    values.clear();
    source.peek_blocks(|_, block| values.extend(block.iter().filter(|x| x.abs() > low)));
    nth_largest(values, k - 1)
}

/// The absolute value with `rank` others at least as large.
fn nth_largest(values: &mut [f32], rank: usize) -> f32 {
    values.select_nth_unstable_by_key(rank, |x| std::cmp::Reverse(pattern(*x))).1.abs()
}

/// The first digit is the exponent and three bits of mantissa.
const DIGITS: [Digit; 3] =
    [Digit { shift: 20, bits: 11 }, Digit { shift: 10, bits: 10 }, Digit { shift: 0, bits: 10 }];
/// Copies of the counters: successive increments of one counter would wait for each other.
const COPIES: usize = 4;

/// A few bits of the pattern of an absolute value. Patterns have the order of the values.
#[derive(Clone, Copy)]
struct Digit {
    shift: u32,
    bits: u32,
}

/// The k-th largest absolute value by radix selection on the bit patterns: three passes that count
/// digits, in 32 KiB of counters.
fn by_digits(source: &mut Source<'_>, k: usize, words: &mut Vec<u32>) -> Threshold {
    let (mut rank, mut equal) = (k, 0);
    let mut bucket = Bucket { prefix: 0, shift: 31 };
    for digit in DIGITS {
        equal = bucket.refine(source, digit, &mut rank, words);
    }
    Threshold { value: f32::from_bits(bucket.prefix), equal, ties: rank }
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
        for row in rows {
            a[at(row[0])] += u32::from(self.holds(row[0]));
            b[at(row[1])] += u32::from(self.holds(row[1]));
            c[at(row[2])] += u32::from(self.holds(row[2]));
            d[at(row[3])] += u32::from(self.holds(row[3]));
        }
        tail.iter().for_each(|&x| a[at(x)] += u32::from(self.holds(x)));
    }

    fn holds(&self, x: f32) -> bool {
        (pattern(x) ^ self.prefix) >> self.shift == 0
    }
}

fn pattern(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// A sample consists of runs of this length, a cache line.
const RUN: usize = 16;
/// A sample has one in this many elements…
const SAMPLED: usize = 256;
/// …but at least this many for an estimate.
const MIN_SAMPLE: usize = 4096;
/// …but at least this many for a bracket.
const MIN_BRACKET: usize = 1024;

/// Estimates the k-th largest absolute value from a random sample.
///
/// The sample has 1/256 of the elements, at least 4096 or all, in runs of 16 at random positions.
/// The estimate is the sample's value at the same relative rank, so it occurs in the tensor.
pub fn sampled_threshold(
    source: &mut Source<'_>,
    k: usize,
    rng: &mut Rng,
    values: &mut Vec<f32>,
) -> f32 {
    let elements = source.len();
    assert!((1..=elements).contains(&k));
    at_random(source, elements / SAMPLED, MIN_SAMPLE, rng, values);
    let size = values.len();
    let rank = (k as u128 * size as u128 / elements as u128).clamp(1, size as u128) as usize;
    nth_largest(values, rank - 1)
}

/// Fills `values` with a random sample of `size` elements or at least `least`, or all: runs of
/// neighbours, drawn with replacement.
pub fn at_random(
    source: &mut Source<'_>,
    size: usize,
    least: usize,
    rng: &mut Rng,
    values: &mut Vec<f32>,
) {
    let runs = (source.len() / RUN) as u64;
    sample(source, size, least, values, |_, _| rng.below(runs) as usize);
}

/// Fills `values` with `size` elements or at least `least`, in runs; `place` gives the index in the
/// tensor of the i-th of n runs. A tensor that has no more elements is taken whole.
fn sample(
    source: &mut Source<'_>,
    size: usize,
    least: usize,
    values: &mut Vec<f32>,
    mut place: impl FnMut(usize, usize) -> usize,
) {
    values.clear();
    if source.len() <= size.max(least) {
        return source.peek_blocks(|_, block| values.extend_from_slice(block));
    }
    let runs = size.max(least).div_ceil(RUN);
    values.reserve(runs * RUN);
    for run in 0..runs {
        source.peek(place(run, runs) * RUN, RUN, |run| values.extend_from_slice(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Floats;

    fn with_source<R>(values: &[f32], look: impl FnOnce(&mut Source<'_>) -> R) -> R {
        let mut scratch = vec![0.0; crate::SCRATCH];
        look(&mut Source::new(Floats::F32(values), None, &mut scratch).unwrap())
    }

    fn exact(values: &[f32], k: usize) -> Threshold {
        with_source(values, |source| kth_largest(source, k, &mut Workspace::default()))
    }

    /// By sorting everything.
    fn sorted(values: &[f32], k: usize) -> Threshold {
        let mut all: Vec<f32> = values.iter().map(|x| x.abs()).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        let value = all[k - 1];
        let equal = all.iter().filter(|&&x| x == value).count();
        Threshold { value, equal, ties: k - all.iter().filter(|&&x| x > value).count() }
    }

    fn noise(seed: u64, len: usize) -> Vec<f32> {
        let mut words = vec![0; len];
        Rng::new(seed, 0, 0, 0, 0).fill(&mut words);
        words.iter().map(|&word| (word as i32 as f32) * 1e-9).collect()
    }

    #[test]
    fn a_small_set_worked_by_hand() {
        let values = [3.0, -5.0, 1.0, 5.0, -2.0, 5.0];
        assert_eq!(exact(&values, 1), Threshold { value: 5.0, equal: 3, ties: 1 });
        assert_eq!(exact(&values, 3), Threshold { value: 5.0, equal: 3, ties: 3 });
        assert_eq!(exact(&values, 4), Threshold { value: 3.0, equal: 1, ties: 1 });
        assert_eq!(exact(&values, 6), Threshold { value: 1.0, equal: 1, ties: 1 });
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
        let mut ordered = noise(4, len);
        ordered.sort_by(f32::total_cmp);
        let sets =
            [noise(0, len), narrow, steps, last_bits, ordered, vec![0.0; len], vec![-2.5; len]];
        for values in sets {
            for k in [1, 2, len / 100, len / 4, len / 2, len - 1, len] {
                let expected = sorted(&values, k);
                assert_eq!(exact(&values, k), expected, "k = {k}");
                let counted = with_source(&values, |source| by_digits(source, k, &mut Vec::new()));
                assert_eq!(counted, expected, "k = {k}, by digits");
            }
        }
    }

    #[test]
    fn the_bracket_spares_the_passes_of_radix_selection() {
        let values = noise(6, 100_000);
        for k in [1, 100, 1_000, 25_000, 99_000] {
            let found = with_source(&values, |source| {
                let mut gathered = Vec::new();
                let (low, high) = bracket(source, k, &mut gathered);
                within(source, k, low, high, &mut gathered, &mut Workspace::default())
            });
            assert_eq!(found, Some(sorted(&values, k)), "k = {k}");
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        let values = noise(4, MIN_SAMPLE);
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
