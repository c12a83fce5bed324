//! Classes of octaves, chosen so that the positions of changes within them take the fewest bits.

use gradwire_bits::kernels::CLASSES;

/// By octave: numbers of elements.
pub(super) type Histogram = [u32; 256];

/// The most intervals of octaves that are told apart.
const MOST: usize = 24;
/// The bits of a class in the header, its share of skipped rests included; in units.
const CLASS: u64 = 8 * ONE;
/// A bit, in the units of costs.
const ONE: u64 = 1 << 12;

/// The last octaves of all classes but the last one, in the form of
/// [`Octaves::last`](gradwire_bits::kernels::Octaves). `changes` counts the changed elements of
/// each octave among the first `known` elements of `len`, and `sample` elements of a sample of them.
pub(super) fn choose(
    changes: &Histogram,
    sample: &Histogram,
    [known, len]: [u32; 2],
) -> [u8; CLASSES - 1] {
    let mut last = [255; CLASSES - 1];
    let Some(intervals) = intervals(changes, sample, [known, len]) else { return last };
    let ends = divide(&intervals);
    for (last, &end) in last.iter_mut().zip(&ends[..ends.len() - 1]) {
        *last = intervals[end].last;
    }
    last
}

/// Octaves that stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interval {
    last: u8,
    /// The numbers of elements and of changes in this interval and those before it.
    elements: u64,
    changes: u64,
}

/// The octaves that have changes, one by one, the octaves below and those above.
fn intervals(
    changes: &Histogram,
    sample: &Histogram,
    [known, len]: [u32; 2],
) -> Option<Vec<Interval>> {
    let first = changes.iter().position(|&count| count > 0)?;
    let end = changes.iter().rposition(|&count| count > 0)?;
    let first = first.max((end + 3).saturating_sub(MOST));
    let sampled = sample.iter().map(|&count| u64::from(count)).sum::<u64>().max(1);
    let mut all = Vec::with_capacity(MOST);
    let mut sum = Interval { last: 0, elements: 0, changes: 0 };
    for octave in 0..=255 {
        let changed = u64::from(changes[octave]) * u64::from(len) / u64::from(known);
        let elements = u64::from(sample[octave]) * u64::from(len) / sampled;
        sum.changes += changed;
        sum.elements += elements.max(changed);
        sum.last = octave as u8;
        if octave + 1 == first || (first..=end).contains(&octave) || octave == 255 {
            all.push(sum);
        }
    }
    Some(all)
}

/// The last intervals of the classes that take the fewest bits.
fn divide(intervals: &[Interval]) -> Vec<usize> {
    let none = Interval { last: 0, elements: 0, changes: 0 };
    let before = |at: usize| if at == 0 { none } else { intervals[at - 1] };
    // By number of classes less one, and last interval: the cost, and the first interval of the
    // last class.
    let mut best = [[(u64::MAX, 0); MOST]; CLASSES];
    for end in 0..intervals.len() {
        for start in 0..=end {
            let (from, to) = (before(start), intervals[end]);
            let cost = cost(to.elements - from.elements, to.changes - from.changes);
            for classes in 0..CLASSES {
                let earlier = match (start, classes) {
                    (0, 0) => 0,
                    (0, _) | (_, 0) => continue,
                    _ => best[classes - 1][start - 1].0,
                };
                let sum = earlier.saturating_add(cost + CLASS);
                if sum < best[classes][end].0 {
                    best[classes][end] = (sum, start);
                }
            }
        }
    }
    let mut end = intervals.len() - 1;
    let mut classes = (0..CLASSES).min_by_key(|&classes| best[classes][end].0).unwrap_or(0);
    let mut ends = vec![end];
    while best[classes][end].1 > 0 {
        end = best[classes][end].1 - 1;
        classes -= 1;
        ends.push(end);
    }
    ends.reverse();
    ends
}

/// The entropy of `changes` positions of `elements`, at most a bit for each element; in units.
fn cost(elements: u64, changes: u64) -> u64 {
    let rest = elements - changes;
    let entropy = weighted(elements) - weighted(changes) - weighted(rest);
    entropy.min(elements * ONE)
}

/// n · log2(n), in units.
fn weighted(n: u64) -> u64 {
    if n == 0 { 0 } else { n * log2(n) }
}

/// The logarithm of n ≥ 1, in units; exact for powers of two, interpolated between 64 points of
/// each octave.
fn log2(n: u64) -> u64 {
    let whole = n.ilog2();
    let fraction = (u128::from(n) << 64 >> whole) as u64;
    let (place, between) = ((fraction >> 58) as usize, fraction >> 46 & 0xfff);
    let (low, high) = (LOGARITHMS[place], LOGARITHMS[place + 1]);
    u64::from(whole) * ONE + low + ((high - low) * between >> 12)
}

/// By i: log2(1 + i/64), in units, rounded down.
const LOGARITHMS: [u64; 65] = {
    let (mut table, mut i) = ([0; 65], 0);
    while i < 64 {
        // Squaring doubles the logarithm; its whole part is the next bit.
        let (mut x, mut bits) = ((64 + i as u64) << 25, 0);
        while bits < 12 {
            x = (x as u128 * x as u128 >> 31) as u64;
            table[i] <<= 1;
            if x >= 1 << 32 {
                x >>= 1;
                table[i] |= 1;
            }
            bits += 1;
        }
        i += 1;
    }
    table[64] = ONE;
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_floats() {
        for n in (1..2000).chain((11..30).map(|bits| (1 << bits) + 12345 % (1 << bits))) {
            let expected = (n as f64).log2();
            assert!((log2(n) as f64 / ONE as f64 - expected).abs() < 5e-4, "{n}");
        }
        assert_eq!(log2(1 << 20), 20 * ONE);
    }

    /// Changes and elements of octaves from 100 up.
    fn last(octaves: &[(u32, u32)]) -> Vec<u8> {
        let (mut changes, mut sample) = ([0; 256], [0; 256]);
        for (at, &(changed, elements)) in octaves.iter().enumerate() {
            (changes[100 + at], sample[100 + at]) = (changed, elements);
        }
        let len = sample.iter().sum();
        choose(&changes, &sample, [len, len]).into_iter().take_while(|&last| last < 255).collect()
    }

    #[test]
    fn octaves_of_one_rate_stay_together() {
        assert!(last(&[(100, 1000), (200, 2000), (50, 500)]).is_empty());
        assert_eq!(last(&[(100, 1000), (100, 1000), (10, 10000)]), [101]);
        assert_eq!(last(&[(0, 1000), (100, 1000), (0, 1000)]), [100, 101]);
        // Too few changes to pay for a class.
        assert!(last(&[(1, 100), (1, 150), (1, 120)]).is_empty());
        assert!(last(&[]).is_empty());
    }

    #[test]
    fn no_classes_are_better() {
        // All ways to divide eight octaves into at most eight classes.
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut sum = Interval { last: 0, elements: 0, changes: 0 };
            let intervals: Vec<Interval> = (0..8)
                .map(|last| {
                    let elements = 1 + random(5000);
                    sum.elements += elements;
                    let most = 1 << random(13);
                    sum.changes += random(1 + elements.min(most));
                    sum.last = last;
                    sum
                })
                .collect();
            let total = |ends: &[usize]| {
                let mut before = (0, 0);
                let costs = ends.iter().map(|&end| {
                    let to = (intervals[end].elements, intervals[end].changes);
                    let cost = cost(to.0 - before.0, to.1 - before.1) + CLASS;
                    before = to;
                    cost
                });
                costs.sum::<u64>()
            };
            let all = (0..1 << 7).map(|cuts| {
                let ends = (0..7).filter(|end| cuts >> end & 1 == 1).chain([7]);
                total(&ends.collect::<Vec<usize>>())
            });
            assert_eq!(total(&divide(&intervals)), all.min().expect("there are some"));
        }
    }
}
