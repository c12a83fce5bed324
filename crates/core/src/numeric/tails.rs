//! The k largest and the k smallest values of a tensor, without sorting it.

use gradwire_bits::kernels::{self, Side};

use crate::parts::{PartResult, part_result};
pub use crate::statistics::Tail;
use crate::statistics::{Found, Statistics, Threshold};
use crate::{BLOCK, Source, Workspace};

/// The buffers of the search for tails.
#[derive(Debug, Default)]
pub struct TailBuffers {
    sides: Sides,
    /// Bit patterns of absolute values, to select among.
    patterns: Vec<u32>,
}

/// Elements of either sign.
#[derive(Debug, Default)]
struct Sides {
    /// A sample of the tensor, then the positive elements that may belong to a tail.
    above: Vec<f32>,
    /// The negative elements that may belong to a tail.
    below: Vec<f32>,
}

part_result!(Sides { above, below });

/// Both tails of up to `k` elements each, exactly. A sample gives a bound for each tail, and one
/// pass over the tensor gathers the elements beyond it. If the bound misses part of a tail, because
/// values are ordered or many are equal, a second pass gathers all elements of the sign. If the
/// compressor has asked for [`Statistics::Tails`], the tails are already known.
pub fn tails(source: &mut Source<'_>, k: usize, workspace: &mut Workspace) -> [Tail; 2] {
    if let Some(Found::Tails(tails)) = source.found(Statistics::Tails(k)) {
        return tails;
    }
    let TailBuffers { mut sides, mut patterns } = std::mem::take(workspace.own());
    let bounds = [Side::Above, Side::Below].map(|side| bound(source, k, side, &mut sides.above));
    // Almost certainly enough, so the buffers soon stop growing.
    let room = (4 * k + source.len() / 16).min(source.len()) + 2 * BLOCK;
    sides.reset();
    sides.above.reserve(room);
    sides.below.reserve(room);
    patterns.clear();
    patterns.reserve(room);
    gather(source, bounds, &mut sides, workspace);
    let Sides { above, below } = &sides;
    if (bounds[0] > 0.0 && above.len() < k) || (bounds[1] > 0.0 && below.len() < k) {
        gather(source, [0.0; 2], &mut sides, workspace);
    }
    let tails = [(Side::Above, &sides.above), (Side::Below, &sides.below)]
        .map(|(side, values)| tail(side, k, values, &mut patterns));
    *workspace.own() = TailBuffers { sides, patterns };
    tails
}

/// The approximate number of tail elements that a sample must contain: with fewer, the estimate
/// varies too much.
const MIN_TAIL: usize = 32;

/// Estimates both tails from a sample alone, by its tails of the same relative size.
pub fn sampled_tails(source: &mut Source<'_>, k: usize, buffers: &mut TailBuffers) -> [Tail; 2] {
    let elements = source.len();
    let TailBuffers { sides: Sides { above, below }, patterns } = buffers;
    let least = MIN_TAIL.saturating_mul(elements) / k.max(1);
    super::selection::evenly_of(source, least, above);
    let size = above.len();
    let k = ((k as u128 * size as u128 / elements.max(1) as u128) as usize).max(1);
    below.clear();
    below.extend(above.iter().filter(|x| **x < 0.0));
    above.retain(|x| *x > 0.0);
    [tail(Side::Above, k, above, patterns), tail(Side::Below, k, below, patterns)]
}

/// Estimates two limits on absolute values: a fraction `ratio` of the elements at or above zero
/// exceeds the first limit, and the same fraction of the elements below zero exceeds the second. 0
/// for a side with only zeros in the sample; otherwise at least one element of the sample exceeds
/// the limit.
pub fn sampled_sides(source: &mut Source<'_>, ratio: f64, buffers: &mut TailBuffers) -> [f32; 2] {
    let Sides { above, below } = &mut buffers.sides;
    // Either side has about half of the elements.
    let least = (2.0 * MIN_TAIL as f64 / ratio) as usize;
    super::selection::evenly_of(source, least, above);
    below.clear();
    below.reserve(above.len());
    below.extend(above.iter().filter(|x| **x < 0.0).map(|x| -x));
    above.retain(|x| *x >= 0.0);
    [above, below].map(|side| {
        let count = ((ratio * side.len() as f64).round() as usize).clamp(1, side.len().max(1));
        if !side.iter().any(|x| *x > 0.0) {
            return 0.0;
        }
        let (_, &mut reached, _) = side.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
        reached.next_down().max(0.0)
    })
}

/// An absolute value that almost certainly all elements of one side's tail exceed; 0 if the tail
/// may contain all elements of the sign.
fn bound(source: &mut Source<'_>, k: usize, side: Side, values: &mut Vec<f32>) -> f32 {
    let elements = source.len();
    super::selection::evenly(source, values);
    if values.len() == elements {
        return 0.0;
    }
    let sign = if side == Side::Below { -1.0 } else { 1.0 };
    let rank = k as f64 * values.len() as f64 / elements as f64;
    // Six standard deviations of the rank, and 8 more, because a small rank is not normally
    // distributed.
    let rank = (rank + 6.0 * rank.sqrt() + 8.0) as usize;
    if rank >= values.len() {
        return 0.0;
    }
    let order = |a: &f32, b: &f32| (sign * b).total_cmp(&(sign * a));
    (sign * *values.select_nth_unstable_by(rank, order).1).max(0.0)
}

/// Collects the elements beyond each bound, in order. The helpers share the pass.
fn gather(source: &mut Source<'_>, bounds: [f32; 2], sides: &mut Sides, workspace: &mut Workspace) {
    sides.reset();
    source.merge_parts(1, workspace, sides, |source, Sides { above, below }| {
        source.peek_short_blocks(|_, block| {
            kernels::values_between(block, Side::Above, [bounds[0], f32::MAX], above);
            kernels::values_between(block, Side::Below, [bounds[1], f32::MAX], below);
        });
    });
}

/// The tail among gathered values that contain all of it.
fn tail(side: Side, k: usize, values: &[f32], patterns: &mut Vec<u32>) -> Tail {
    let count = k.min(values.len());
    if count == 0 {
        let threshold = Threshold { value: f32::MAX, equal: 0, ties: 0 };
        return Tail { side, threshold, count, mean: 0.0 };
    }
    // Patterns of absolute values have the order of the values.
    patterns.clear();
    patterns.extend(values.iter().map(|x| x.to_bits() & 0x7fff_ffff));
    let (_, &mut pattern, _) = patterns.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
    let value = f32::from_bits(pattern);
    let (mut larger, mut equal, mut sum) = (0, 0, 0.0);
    for x in values.iter().map(|x| x.abs()) {
        larger += usize::from(x > value);
        equal += usize::from(x == value);
        sum += if x > value { f64::from(x) } else { 0.0 };
    }
    let ties = count - larger;
    sum += ties as f64 * f64::from(value);
    let threshold = Threshold { value, equal, ties };
    Tail { side, threshold, count, mean: (sum / count as f64) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Floats, Rng};

    fn both(values: &[f32], k: usize) -> [Tail; 2] {
        let mut scratch = vec![0.0; crate::SCRATCH];
        let mut source = Source::new(Floats::F32(values), None, &mut scratch).unwrap();
        tails(&mut source, k, &mut Workspace::default())
    }

    /// By sorting everything.
    fn sorted(values: &[f32], k: usize, side: Side) -> Tail {
        let sign = if side == Side::Below { -1.0 } else { 1.0 };
        let mut own: Vec<f32> = values.iter().map(|x| sign * x).filter(|x| *x > 0.0).collect();
        own.sort_by(|a, b| b.total_cmp(a));
        let count = k.min(own.len());
        let value = if count > 0 { own[count - 1] } else { f32::MAX };
        let equal = own.iter().filter(|&&x| x == value).count();
        let ties = count - own.iter().filter(|&&x| x > value).count().min(count);
        let sum: f64 = own[..count].iter().map(|&x| f64::from(x)).sum();
        let mean = if count > 0 { (sum / count as f64) as f32 } else { 0.0 };
        Tail { side, threshold: Threshold { value, equal, ties }, count, mean }
    }

    #[test]
    fn small_tails_worked_by_hand() {
        let values = [3.0, -5.0, 1.0, 5.0, -2.0, 5.0, 0.0];
        let [above, below] = both(&values, 2);
        assert_eq!(above.threshold, Threshold { value: 5.0, equal: 2, ties: 2 });
        assert_eq!((above.count, above.mean), (2, 5.0));
        assert_eq!(below.threshold, Threshold { value: 2.0, equal: 1, ties: 1 });
        assert_eq!((below.count, below.mean), (2, 3.5));
        // Only two are negative.
        assert_eq!(both(&values, 4)[1].count, 2);
        assert_eq!(both(&[0.0, -0.0], 1).map(|tail| (tail.count, tail.mean)), [(0, 0.0); 2]);
    }

    #[test]
    fn agrees_with_sorting_whatever_the_distribution() {
        let len = 40_000;
        let mut words = vec![0; len];
        Rng::new(1, 0, 0, 0, 0).fill(&mut words);
        let noise: Vec<f32> = words.iter().map(|&word| (word as i32 as f32) * 1e-9).collect();
        let steps: Vec<f32> = noise.iter().map(|x| (x * 4.0).round()).collect();
        let mut ordered = noise.clone();
        ordered.sort_by(f32::total_cmp);
        let skewed: Vec<f32> = noise.iter().map(|x| x.abs() - 0.01).collect();
        let mut late = vec![0.0; len];
        late[len - 300..].copy_from_slice(&noise[..300]);
        for values in [noise, steps, ordered, skewed, late, vec![-2.5; len]] {
            for k in [1, 40, 400, 10_000, len] {
                for (found, side) in both(&values, k).into_iter().zip([Side::Above, Side::Below]) {
                    let expected = sorted(&values, k, side);
                    assert_eq!(found.threshold, expected.threshold, "k = {k}, {side:?}");
                    assert_eq!(found.count, expected.count, "k = {k}, {side:?}");
                    let error = (found.mean - expected.mean).abs();
                    assert!(error <= 1e-6 * expected.mean, "k = {k}, {side:?}");
                }
            }
        }
    }

    #[test]
    fn samples_estimate_tails() {
        let mut words = vec![0; 300_000];
        Rng::new(5, 0, 0, 0, 0).fill(&mut words);
        let values: Vec<f32> =
            words.iter().map(|&word| word as i32 as f32 / (1u32 << 31) as f32).collect();
        let mut scratch = vec![0.0; crate::SCRATCH];
        let mut source = Source::new(Floats::F32(&values), None, &mut scratch).unwrap();
        // The upper tenth of a uniform distribution on [-1, 1).
        for tail in sampled_tails(&mut source, 30_000, &mut TailBuffers::default()) {
            assert!((tail.threshold.value - 0.8).abs() < 0.05, "{tail:?}");
            assert!((tail.mean - 0.9).abs() < 0.03, "{tail:?}");
        }
    }
}
