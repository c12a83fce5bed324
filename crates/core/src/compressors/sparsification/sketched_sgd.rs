//! `sketched-sgd`: the heaviest elements of the mean gradient, found by a count sketch.
//!
//! If the ranks' heaviest elements differ, the heaviest elements of the mean may be among none of
//! them. In the first round an all-reduce averages [count sketches](crate::numeric::sketch) of the
//! ranks' corrected gradients. From the mean, every rank estimates all elements; the candidates·k
//! largest estimates are the candidates. The second round averages their exact values, and the k
//! largest become the gradient.
//!
//! - **Message**: the table, `rows` × `width`·k, then candidates·k values, all `f32`:
//!   32·k·(rows·width + candidates) bits, with k = max(1, ⌊ratio·d + ½⌋). The table determines the
//!   positions of the values. Tensors that this would not shrink are sent uncompressed.
//! - **Aggregation**: two rounds of all-reduce. Under other exchanges each rank finds its own
//!   heaviest elements, and tables and values are gathered; `topk` does the same with fewer bytes.
//! - **Range**: ratio in (0, 1]; rows 1 to 15 (an even number averages the two middle estimates);
//!   width 1 to 1000 columns per sent element; candidates 1 to 1000.
//! - **Error feedback**: on, as a dense residual: the gradient at the k elements is sent,
//!   everything else stays in the residual. The optimizer applies momentum, after the exchange.
//! - **Limits**: the first of equal estimates are candidates. With few columns many are equal, and
//!   an element at the end of the tensor may never be a candidate: its residual then grows without
//!   bound.
//! - **Draws**: two keys per row, drawn at every step and the same on every rank.
//! - **Deviations**: the paper keeps momentum and error in the sketch or as dense arrays; for this
//!   method see above. Neighbours in runs of sixteen share a hash: the [mean of
//!   estimates](crate::numeric::sketch) stays the same and their variance is no greater, but the
//!   elements of two runs share columns together or not at all. A table that would overflow is sent
//!   as zeros.
//! - **Cost**: `rows` additions, `rows` look-ups and a median per element; twice under all-reduce.
//!   Each run of sixteen is at random addresses of the table.
//!
//! Reference: Ivkin, Rothchild, Ullah, Braverman, Stoica, Arora: "Communication-efficient
//! Distributed SGD with Sketching", NeurIPS 2019.

use std::ops::Bound::{Excluded, Included};
use std::sync::{PoisonError, RwLock};

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Side};

use crate::compressors::single_rank::SingleRank;
use crate::multi_round::{self, MultiRound, RankState, Round, RoundContext};
use crate::numeric::sketch::{CountSketch, MAX_ROWS, PART};
use crate::parameters::{real, whole};
use crate::parts;
use crate::{Context, Coverage, Entry, Family, Guarantee, Passes, Workspace};

pub(crate) static ENTRY: Entry = Entry {
    id: "sketched-sgd",
    summary: "the largest elements of the mean, found with a count sketch",
    formula: "x̂ = c at the k largest of the elements that a count sketch of c estimates to be largest, 0 elsewhere",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &["ratio=0.01,rows=3", "ratio=0.03,rows=2,width=3"],
    reference: "Ivkin et al., NeurIPS 2019",
    payload: "table of f32, candidates f32",
    passes: Passes { after: 1, ..Passes::ONE },
    ..Entry::of::<SingleRank<SketchedSgd>>(|_| {
        Guarantee::Neither("a count sketch may miss the large elements")
    })
};

crate::parameters! {
    /// Heaviest elements by a count sketch.
    pub struct SketchedSgd {
        /// fraction of elements to send
        pub ratio: f64 = real(0.001, Excluded(0.0), Included(1.0)),
        /// rows of the table
        pub rows: usize = whole(5, 1..=MAX_ROWS as u64),
        /// columns of the table per sent element
        pub width: usize = whole(4, 1..=1000),
        /// candidates per sent element; their exact values are exchanged
        pub candidates: usize = whole(4, 1..=1000),
    }
}

/// The sizes for one tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sizes {
    sent: usize,
    columns: usize,
    table: usize,
    candidates: usize,
}

impl Sizes {
    /// The most elements in the buffers of the search for candidates.
    fn room(self) -> usize {
        // Threads add the candidates of a whole part.
        2 * self.candidates + parts::PART
    }
}

impl SketchedSgd {
    /// `None` if the tensor is sent uncompressed.
    fn sizes(&self, elements: usize) -> Option<Sizes> {
        let sent = ((self.ratio * elements as f64 + 0.5) as usize).max(1);
        let columns = self.width.checked_mul(sent)?;
        let (table, candidates) =
            (self.rows.checked_mul(columns)?, self.candidates.checked_mul(sent)?);
        let smaller = table.checked_add(candidates)? < elements;
        smaller.then_some(Sizes { sent, columns, table, candidates })
    }

    fn sketch(&self, sizes: Sizes, context: &Context<'_>) -> CountSketch {
        let mut rng = context.shared_rng(0);
        let keys = (0..self.rows).map(|_| [rng.next_u64(), rng.next_u64()]);
        CountSketch::new(keys, sizes.columns)
    }

    /// Reserves memory for a search, so [`find`](Self::find) allocates nothing.
    fn make_room(&self, sizes: Sizes, workspace: &mut Workspace) -> Result<(), DecodeError> {
        let Workspace { positions, values, own, .. } = workspace;
        let Search { estimates, patterns, chosen } = own.get();
        for numbers in [positions, patterns, chosen] {
            numbers.clear();
            numbers.try_reserve(sizes.room())?;
        }
        values.clear();
        values.try_reserve(sizes.room())?;
        estimates.clear();
        Ok(estimates.try_reserve(self.rows * PART)?)
    }

    /// Writes the positions of the candidates, increasing, to the workspace. The helpers share the
    /// work.
    ///
    /// Estimates are computed block by block and not stored: an element is dropped if enough
    /// earlier elements have estimates at least as large.
    fn find(
        &self,
        table: &[f32],
        elements: usize,
        sizes: Sizes,
        context: &Context<'_>,
        workspace: &mut Workspace,
    ) {
        let sketch = self.sketch(sizes, context);
        let Workspace { positions, values, own, helpers, .. } = workspace;
        let Search { estimates, patterns, chosen } = own.get();
        let (k, parts) = (sizes.candidates, helpers.parts(elements, PART));
        reserve(sizes.room(), values, [patterns, positions, chosen]);
        if parts.is_one() {
            let mut least = None;
            sketch.estimates(table, 0..elements, estimates, |start, block| {
                append_beyond(least, start, block, positions, values);
                if values.len() >= 2 * k {
                    least = Some(keep_largest(k, values, positions, patterns, chosen));
                }
            });
        } else {
            // The k-th largest estimate of earlier parts: an equal element comes after k others.
            let least = RwLock::new(None);
            let estimate = |places, found: &mut Found| {
                let least = *least.read().unwrap_or_else(PoisonError::into_inner);
                found.positions.clear();
                found.values.clear();
                sketch.estimates(table, places, &mut found.estimates, |start, block| {
                    append_beyond(least, start, block, &mut found.positions, &mut found.values);
                });
            };
            helpers.each_in_order(parts.places(), estimate, |found| {
                positions.extend_from_slice(&found.positions);
                values.extend_from_slice(&found.values);
                if values.len() >= 2 * k {
                    let largest = keep_largest(k, values, positions, patterns, chosen);
                    *least.write().unwrap_or_else(PoisonError::into_inner) = Some(largest);
                }
            });
        }
        keep_largest(k, values, positions, patterns, chosen);
    }
}

/// The findings of a thread in a part.
#[derive(Debug, Default)]
struct Found {
    /// The estimates of a block by each row of the sketch.
    estimates: Vec<f32>,
    /// The elements that may be candidates, and their estimates.
    positions: Vec<u32>,
    values: Vec<f32>,
}

/// Appends the elements of a block whose absolute value is above the least of the candidates so
/// far; all elements, even NaN, if there are not enough candidates yet.
fn append_beyond(
    least: Option<f32>,
    start: usize,
    block: &mut [f32],
    positions: &mut Vec<u32>,
    values: &mut Vec<f32>,
) {
    let first = start as u32;
    match least {
        Some(least) => {
            kernels::compact_beyond(block, Side::Both, least, first, positions, values);
        }
        None => {
            positions.extend(first..first + block.len() as u32);
            values.extend_from_slice(block);
        }
    }
}

/// Buffers of the search for the largest elements.
#[derive(Debug, Default)]
struct Search {
    /// The estimates of a block by each row of the sketch.
    estimates: Vec<f32>,
    /// Bit patterns of absolute values.
    patterns: Vec<u32>,
    /// The indices of the largest among the candidates.
    chosen: Vec<u32>,
}

impl MultiRound for SketchedSgd {
    fn round(&self, context: &RoundContext<'_>, round: usize) -> Option<Round> {
        let elements = context.context.shape.iter().product();
        let len = match (self.sizes(elements), round) {
            (Some(sizes), 0) => sizes.table,
            (Some(sizes), 1) => sizes.candidates,
            (None, 0) => elements,
            _ => return None,
        };
        Some(Round::mean(len))
    }

    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>) {
        let elements = state.corrected.len();
        let Some(sizes) = self.sizes(elements) else {
            return multi_round::contribute_raw(state, addend);
        };
        if round == 0 {
            let start = addend.len();
            addend.resize(start + sizes.table, 0.0);
            let (table, helpers) = (&mut addend[start..], &mut state.workspace.helpers);
            self.sketch(sizes, state.context).add(state.corrected, table, helpers);
            return multi_round::zero_beyond(f32::MAX, &mut addend[start..]);
        }
        self.find(&state.means[..sizes.table], elements, sizes, state.context, state.workspace);
        addend.extend(state.workspace.positions.iter().map(|&at| state.corrected[at as usize]));
    }

    fn settle(&self, state: &mut RankState<'_>) -> Coverage {
        let elements = state.corrected.len();
        let Some(sizes) = self.sizes(elements) else { return Coverage::All };
        let exact = &state.means[sizes.table..];
        // The last round of a single rank, or decoding, has left the candidates in the workspace.
        let Workspace { positions, own, .. } = &mut *state.workspace;
        let Search { patterns, chosen, .. } = own.get();
        debug_assert_eq!(positions.len(), sizes.candidates);
        largest(exact, sizes.sent, patterns, chosen);
        chosen.iter_mut().for_each(|at| *at = positions[*at as usize]);
        std::mem::swap(positions, chosen);
        positions.iter().for_each(|&at| state.corrected[at as usize] = 0.0);
        Coverage::Positions
    }

    fn decode_add(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let Some(sizes) = self.sizes(out.len()) else {
            return multi_round::add_raw(means, weight, out);
        };
        let (table, exact) = means.split_at(sizes.table);
        self.make_room(sizes, workspace)?;
        self.find(table, out.len(), sizes, context.context, workspace);
        let Workspace { positions, own, .. } = workspace;
        let Search { patterns, chosen, .. } = own.get();
        largest(exact, sizes.sent, patterns, chosen);
        for &at in &*chosen {
            out[positions[at as usize] as usize] += weight * exact[at as usize];
        }
        Ok(())
    }

    fn max_elements(&self, message_len: usize) -> usize {
        // A tensor has at most (k + ½)/ratio elements, and the message at least k numbers per row.
        let sent = message_len / 4 / (self.rows * self.width + self.candidates) + 1;
        let shrunk = (sent as f64 + 1.0) / self.ratio;
        (shrunk as usize).max(message_len / 4).min(u32::MAX as usize)
    }
}

/// Writes the indices of the `k` largest absolute values (the first of equal ones) to `chosen`,
/// increasing. Returns the smallest of these values. `patterns` is working memory.
fn largest(values: &[f32], k: usize, patterns: &mut Vec<u32>, chosen: &mut Vec<u32>) -> f32 {
    let pattern = |x: &f32| x.to_bits() & 0x7fff_ffff;
    patterns.clear();
    patterns.extend(values.iter().map(pattern));
    let (greater, &mut threshold, _) = patterns.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    let mut ties = k - greater.iter().filter(|&&x| x > threshold).count();
    chosen.clear();
    for (at, x) in values.iter().enumerate() {
        let pattern = pattern(x);
        if pattern > threshold || (pattern == threshold && ties > 0) {
            ties -= usize::from(pattern == threshold);
            chosen.push(at as u32);
        }
    }
    f32::from_bits(threshold)
}

/// Removes all but the `k` largest absolute values and their positions, and returns the smallest of
/// them. `patterns` and `chosen` are working memory.
fn keep_largest(
    k: usize,
    values: &mut Vec<f32>,
    positions: &mut Vec<u32>,
    patterns: &mut Vec<u32>,
    chosen: &mut Vec<u32>,
) -> f32 {
    let least = largest(values, k, patterns, chosen);
    for (to, &from) in chosen.iter().enumerate() {
        (values[to], positions[to]) = (values[from as usize], positions[from as usize]);
    }
    values.truncate(k);
    positions.truncate(k);
    least
}

/// Clears buffers and reserves memory for `len` elements, so they grow only in the first step.
fn reserve(len: usize, values: &mut Vec<f32>, others: [&mut Vec<u32>; 3]) {
    values.clear();
    values.reserve(len);
    for other in others {
        other.clear();
        other.reserve(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, f32s, residual, round_trip};
    use crate::{Helpers, MIN_DIVIDED};

    /// A rank may have sent a table that overflowed: the results of all ranks are refused later.
    #[test]
    fn estimates_that_are_no_numbers_are_ranked() {
        let own = SketchedSgd { ratio: 0.001, rows: 3, width: 2, candidates: 4 };
        let elements = MIN_DIVIDED + 7;
        let sizes = own.sizes(elements).unwrap();
        let context =
            Context { seed: 1, tensor: 2, shape: &[elements], step: 3, rank: 4, ranks: 1 };
        for helpers in [0, 2] {
            let helpers = Helpers::new(helpers);
            let mut workspace = Workspace { helpers, ..Workspace::default() };
            own.find(&vec![f32::NAN; sizes.table], elements, sizes, &context, &mut workspace);
            assert_eq!(workspace.positions.len(), sizes.candidates);
        }
    }

    #[test]
    fn the_largest_are_found_with_the_first_of_equals() {
        let (mut patterns, mut chosen) = (Vec::new(), Vec::new());
        let mut values = vec![1.0, -3.0, 2.0, -2.0, 0.0, 2.0];
        assert_eq!(largest(&values, 3, &mut patterns, &mut chosen), 2.0);
        assert_eq!(chosen, [1, 2, 3]);
        let mut positions = vec![4, 5, 7, 8, 9, 11];
        keep_largest(3, &mut values, &mut positions, &mut patterns, &mut chosen);
        assert_eq!((values, positions), (vec![-3.0, 2.0, -2.0], vec![5, 7, 8]));
        largest(&[0.0; 4], 2, &mut patterns, &mut chosen);
        assert_eq!(chosen, [0, 1]);
    }

    // The messages below are of tensor t at step 2 with seed 1. The first draws of its shared
    // generator, factor and term of three rows, are
    //
    //     0xfb3976f93a62bcab 0x8fb8743a1c39f493
    //     0xee707ec42fea89b4 0xd7d69371428e2360
    //     0xfdee9d71e507f2b7 0x65d6d20d65643dc2
    //
    // so the first row's hashes of runs 0 to 3 begin 0x8fb8743a, 0x8af1eb33, 0x862b622c and
    // 0x8164d925: the upper half maps to the second of two columns, and odd ones have the sign −.
    // With two columns, runs have two elements.
    #[test]
    fn one_row_worked_by_hand() {
        // Columns 1 0 1 0 1 0 1 0, signs + + − − + + − −.
        let gradient = [0.5, 1.0, 2.0, 4.0, 8.0, 0.25, 1.0, -16.0];
        let spec = "sketched-sgd:rows=1,width=2,candidates=3";
        // Sums 1 − 4 + 0.25 + 16 and 0.5 − 2 + 8 − 1. All elements of the first column have the
        // same estimate, so its last element, though the heaviest, is not among the first three.
        assert_eq!(f32s(&encode(spec, &gradient)), [13.25, 5.5, 1.0, 4.0, 0.25]);
        let (mut decoded, mut left) = ([0.0; 8], gradient);
        (decoded[3], left[3]) = (4.0, 0.0);
        assert_eq!(round_trip(spec, &gradient), decoded);
        assert_eq!(residual(spec, &gradient), left);
    }

    #[test]
    fn the_median_of_three_rows_worked_by_hand() {
        let mut gradient = [0.0; 12];
        (gradient[3], gradient[4], gradient[6], gradient[7]) = (8.0, 1.0, -2.0, 4.0);
        // Columns and signs of elements 3, 4, 6 and 7, row by row:
        //     0− 1+ 1− 0−   sums −8 − 4 and 1 + 2
        //     0− 1− 1− 0−        −8 − 4 and −1 + 2
        //     1− 0− 0− 1−        −1 + 2 and −8 − 4
        let table = [-12.0, 3.0, -12.0, 1.0, 1.0, -12.0];
        // Element 3 is estimated by 12 three times. Elements 1 and 5 are estimated by 12 in two
        // rows and by −12 in the first, so their median is 12, too. Elements 7, 9 and 11, also 12
        // or −12, come after them.
        let spec = "sketched-sgd:rows=3,width=2,candidates=3";
        assert_eq!(f32s(&encode(spec, &gradient))[..6], table);
        assert_eq!(f32s(&encode(spec, &gradient))[6..], [0.0, 8.0, 0.0]);
        let (mut decoded, mut left) = ([0.0; 12], gradient);
        (decoded[3], left[3]) = (8.0, 0.0);
        assert_eq!(round_trip(spec, &gradient), decoded);
        assert_eq!(residual(spec, &gradient), left);
    }

    #[test]
    fn candidates_are_those_that_sorting_all_estimates_finds() {
        // Estimates of several parts, many equal, in increasing, decreasing and no order.
        let elements = MIN_DIVIDED + 7;
        let context =
            Context { seed: 1, tensor: 2, shape: &[elements], step: 3, rank: 4, ranks: 1 };
        for (columns, rows) in [(3, 1), (40, 2), (500, 5)] {
            let own = SketchedSgd { ratio: 0.001, rows, width: 1, candidates: 1 };
            for candidates in [1, 20, 4000, elements - 1] {
                let sizes = Sizes { sent: 1, columns, table: rows * columns, candidates };
                let table: Vec<f32> = (0..sizes.table).map(|i| (i * 7919 % 101) as f32).collect();
                let (mut estimates, mut found) = (Vec::new(), Vec::new());
                let sketch = own.sketch(sizes, &context);
                sketch.estimates(&table, 0..elements, &mut found, |_, block| {
                    estimates.extend_from_slice(block);
                });
                let mut expected: Vec<u32> = (0..elements as u32).collect();
                // Stable, so the first of equal ones stay so.
                expected.sort_by(|&a, &b| {
                    let [a, b] = [a, b].map(|at| estimates[at as usize].abs());
                    b.total_cmp(&a)
                });
                expected.truncate(candidates);
                expected.sort_unstable();
                for helpers in [0, 2] {
                    let helpers = Helpers::new(helpers);
                    let mut workspace = Workspace { helpers, ..Workspace::default() };
                    own.find(&table, elements, sizes, &context, &mut workspace);
                    assert!(workspace.positions == expected, "{columns}, {rows}, {candidates}");
                }
            }
        }
    }

    #[test]
    fn a_table_without_collisions_finds_the_heaviest_exactly() {
        let mut gradient = vec![0.0; 1000];
        (gradient[7], gradient[500], gradient[999]) = (1.0, -8.0, 4.0);
        // k = 2: a table of 5 × 80, and 8 candidates.
        let spec = "sketched-sgd:ratio=0.002,width=40";
        assert_eq!(encode(spec, &gradient).len(), 4 * (5 * 80 + 8));
        let mut expected = gradient.clone();
        expected[7] = 0.0;
        assert_eq!(round_trip(spec, &gradient), expected);
        assert_eq!(residual(spec, &gradient)[7], 1.0);
        assert_eq!(residual(spec, &gradient).iter().filter(|&&x| x != 0.0).count(), 1);
    }

    #[test]
    fn small_tensors_travel_as_they_are() {
        // k = 1: 5 · 4 + 4 numbers.
        let gradient: Vec<f32> = (0..24).map(|x| x as f32).collect();
        assert_eq!(encode("sketched-sgd", &gradient).len(), 96);
        assert_eq!(round_trip("sketched-sgd", &gradient), gradient);
        assert_eq!(encode("sketched-sgd", &[0.5; 25]).len(), 96);
    }
}
