//! `gradiveq`: sends the coefficients of slices of the gradient in a basis that all ranks share.
//!
//! The flattened gradient is cut into slices of K elements. The first exchange and then every
//! `refresh`-th is a refresh, which sends slices uncompressed. The basis B is the `keep` leading
//! eigenvectors of the K × K matrix of second moments of the mean slices. Until the next refresh
//! each slice x is sent as Bᵀx, and B·mean(Bᵀx) gives the slices of the mean gradient. Elements
//! after the last whole slice are sent uncompressed.
//!
//! - **Message**: all `f32`. At a refresh the tensor, then the basis from rank 0 and zeros from the
//!   others; otherwise `keep` coefficients per slice, coefficient by coefficient, then the
//!   remaining elements. A single rank sends basis (K × keep, vector by vector), coefficients and
//!   remaining elements in every message. Tensors that this form would not shrink are sent
//!   uncompressed.
//! - **Aggregation**: one round of all-reduce, two at a refresh. Under other exchanges each rank
//!   computes its own basis.
//! - **Range**: slice 2 to 4096; keep 1 to 4096; refresh 1 or more (1 never compresses under
//!   all-reduce).
//! - **Error feedback**: on; the residual is the part of the gradient outside the span of the
//!   basis.
//! - **Deviations**: second moments are about zero rather than about the slices' mean, so coding is
//!   linear and needs no mean vector.
//! - **Cost**: 8 bytes per element for the sum, 4 for the coefficients, 8 for the residual, and
//!   `keep` multiplications per element in each of two matrix products; at a refresh, K
//!   multiplications per element and an eigenvalue problem of size K, or of the number of slices if
//!   it is smaller. 64 coefficients mean 256 operations per 20 bytes: arithmetic is the bottleneck,
//!   not memory. A core that multiplies and adds sixteen numbers per cycle needs eight cycles per
//!   element.
//!
//! Reference: Yu, Lin, Narra, Li, Li, Kim, Schwing, Annavaram, Avestimehr: "GradiVeQ: Vector
//! Quantization for Bandwidth-Efficient Gradient Aggregation in Distributed CNN Training", NeurIPS
//! 2018.

use gradwire_bits::{DecodeError, kernels};

use super::factors::{Factors, LARGEST_OF_UNIT, check_unit};
use crate::compressors::single_rank::SingleRank;
use crate::multi_round::{self, KeptValues, MultiRound, RankState, Round, RoundContext};
use crate::numeric::components;
use crate::numeric::matrix::{Panels, orthonormalise, times};
use crate::parameters::{Parameters, whole};
use crate::{Coverage, Entry, Family, Guarantee, Helpers, Passes, Workspace};

/// The largest count that `f32` holds exactly.
const COUNTED: u64 = 1 << 24;

pub(crate) static ENTRY: Entry = Entry {
    id: "gradiveq",
    summary: "coefficients of slices in a basis of principal components",
    formula: "x̂ = B·Bᵀx for slices x, B the leading eigenvectors of Σ x·xᵀ at the latest refresh",
    family: Family::LowRank,
    error_feedback: true,
    examples: &["slice=16,keep=3", "slice=8,keep=2,refresh=2"],
    reference: "Yu et al., NeurIPS 2018",
    payload: "keep × f32 per slice",
    passes: Passes { after: 1, ..Passes::ONE },
    ..Entry::of::<SingleRank<GradiVeq>>(|values| GradiVeq::new(values).guarantee())
};

crate::parameters! {
    /// Vector quantization by principal components.
    pub struct GradiVeq {
        /// slice size in elements
        pub slice: usize = whole(512, 2..=4096),
        /// coefficients per slice
        pub keep: usize = whole(64, 1..=4096),
        /// number of exchanges after which the basis is computed again
        pub refresh: u64 = whole(100, 1..=COUNTED),
    }
}

impl GradiVeq {
    fn guarantee(&self) -> Guarantee {
        match self.refresh {
            1 => Guarantee::Contractive,
            _ => Guarantee::Neither(
                "between refreshes the part outside the span of the basis is not sent",
            ),
        }
    }

    /// Slices as rows and their coefficients as a first factor, the basis as a second; `None` if
    /// the tensor is sent uncompressed.
    fn factors(&self, elements: usize) -> Option<Factors> {
        Factors::of(&[elements / self.slice, self.slice], self.keep)
    }

    /// Whether the basis is computed again. Counts exchanges, not local steps.
    fn refreshes(&self, context: &RoundContext<'_>) -> bool {
        let (used, basis) = context.kept.split_last().expect("a count follows the basis");
        *used == 0.0 || *used as u64 >= self.refresh || basis.iter().all(|&x| x == 0.0)
    }

    /// Appends the coefficients of all slices and the remaining elements, and subtracts the decoded
    /// values from the gradient. The helpers share the slices.
    fn project(&self, factors: Factors, state: &mut RankState<'_>, addend: &mut Vec<f32>) {
        let start = addend.len();
        let [slices, slice] = factors.dimensions;
        let (sliced, rest) = state.corrected.split_at_mut(slices * slice);
        let basis = &state.kept[..factors.second()];
        let Workspace { own, helpers, .. } = &mut *state.workspace;
        let Coefficients(block) = own.get();
        addend.resize(start + factors.first(), 0.0);
        let coefficients = &mut addend[start..];
        // A panel is whole blocks: a block that would overflow stays in the residual as a whole.
        let at_once = (BLOCK_ELEMENTS / slice).max(1);
        let panels = Panels::new(slices, slice, at_once, helpers);
        if panels.is_one() {
            self.project_slices(&factors, basis, sliced, coefficients, block);
        } else {
            let values = sliced.chunks_mut(panels.len * slice);
            panels.fill(coefficients, values, helpers, |_, coefficients, sliced| {
                self.project_slices(&factors, basis, sliced, coefficients, &mut Vec::new());
            });
        }
        addend.extend_from_slice(rest);
        rest.fill(0.0);
    }

    /// Writes the coefficients of slices, column by column, and subtracts the decoded values. Takes
    /// slices in blocks that stay in the second-level cache.
    fn project_slices(
        &self,
        factors: &Factors,
        basis: &[f32],
        sliced: &mut [f32],
        coefficients: &mut [f32],
        block: &mut Vec<f32>,
    ) {
        let (slice, helpers) = (factors.dimensions[1], &mut Helpers::default());
        let slices = sliced.len() / slice;
        let at_once = (BLOCK_ELEMENTS / slice).max(1);
        for (number, sliced) in sliced.chunks_mut(at_once * slice).enumerate() {
            let (first, count) = (number * at_once, sliced.len() / slice);
            block.clear();
            times(sliced, count, basis, self.keep, block, helpers);
            factors.keep_in_range(basis, block, sliced);
            factors.subtract(block, basis, sliced, helpers);
            let columns = coefficients.chunks_exact_mut(slices).zip(block.chunks_exact(count));
            columns.for_each(|(column, block)| column[first..][..count].copy_from_slice(block));
        }
    }
}

/// The elements of a block of slices.
const BLOCK_ELEMENTS: usize = 1 << 15;

/// The coefficients of a block of slices.
#[derive(Debug, Default)]
struct Coefficients(Vec<f32>);

/// The basis, and the number of its uses.
impl KeptValues for GradiVeq {
    fn len(&self, shape: &[usize]) -> usize {
        self.factors(shape.iter().product()).map_or(0, |factors| factors.second() + 1)
    }

    fn check(&self, values: &[f32]) -> Result<(), String> {
        let Some((used, basis)) = values.split_last() else { return Ok(()) };
        check_unit(basis)?;
        match used.fract() == 0.0 && (0.0..=COUNTED as f32).contains(used) {
            true => Ok(()),
            false => {
                Err(format!("its last element is {used}, not a count of exchanges up to {COUNTED}"))
            }
        }
    }

    fn layout(&self) -> [usize; 2] {
        [self.slice, self.keep]
    }
}

impl MultiRound for GradiVeq {
    fn kept(&self) -> Option<&dyn KeptValues> {
        Some(self)
    }

    fn round(&self, context: &RoundContext<'_>, round: usize) -> Option<Round> {
        let elements: usize = context.context.shape.iter().product();
        let Some(factors) = self.factors(elements) else {
            return (round == 0).then(|| Round::mean(elements));
        };
        let coded = factors.first() + elements % self.slice;
        let len = match (round, context.single_rank) {
            (0, true) => factors.second() + coded,
            (0, false) if self.refreshes(context) => elements,
            (0, false) => coded,
            (1, false) if self.refreshes(context) => factors.second(),
            _ => return None,
        };
        Some(Round::mean(len))
    }

    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>) {
        let Some(factors) = self.factors(state.corrected.len()) else {
            return multi_round::contribute_raw(state, addend);
        };
        let refreshes = self.refreshes(&state.round_context());
        if state.single_rank {
            let (used, basis) = state.kept.split_last_mut().expect("a count follows the basis");
            if refreshes {
                principal(state.corrected, factors, basis);
                *used = 0.0;
            }
            addend.extend_from_slice(basis);
            return self.project(factors, state, addend);
        }
        match round {
            0 if refreshes => multi_round::contribute_raw(state, addend),
            0 => self.project(factors, state, addend),
            _ => {
                let start = addend.len();
                addend.resize(start + factors.second(), 0.0);
                if state.context.rank == 0 {
                    principal(state.means, factors, &mut addend[start..]);
                }
            }
        }
    }

    fn settle(&self, state: &mut RankState<'_>) -> Coverage {
        let Some(factors) = self.factors(state.corrected.len()) else { return Coverage::All };
        let refreshed = self.refreshes(&state.round_context());
        let (used, basis) = state.kept.split_last_mut().expect("a count follows the basis");
        if refreshed && !state.single_rank {
            basis.copy_from_slice(&state.means[state.corrected.len()..]);
            orthonormalise(basis, factors.dimensions[1]);
        }
        *used = if refreshed { 1.0 } else { *used + 1.0 };
        Coverage::All
    }

    fn decode_add(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let Some(factors) = self.factors(out.len()) else {
            return multi_round::add_raw(means, weight, out);
        };
        let (basis, coded) = match context.single_rank {
            true => means.split_at(factors.second()),
            false if self.refreshes(context) => {
                return multi_round::add_raw(&means[..out.len()], weight, out);
            }
            false => (&context.kept[..factors.second()], means),
        };
        let (coefficients, rest) = factors.split(coded);
        factors.check(basis, coefficients)?;
        let [slices, slice] = factors.dimensions;
        let (sliced, end) = out.split_at_mut(slices * slice);
        factors.add(coefficients, basis, weight, sliced, &mut workspace.helpers);
        kernels::add_scaled(end, rest, weight);
        Ok(())
    }

    fn max_elements(&self, message_len: usize) -> usize {
        let slices = message_len / 4 / self.keep;
        slices.saturating_mul(self.slice).saturating_add(message_len / 4)
    }
}

/// Writes the principal components of the slices to `basis`; zeros if the decomposition fails,
/// which makes the next exchange a refresh.
fn principal(values: &[f32], factors: Factors, basis: &mut [f32]) {
    let [slices, slice] = factors.dimensions;
    components::leading(&values[..slices * slice], slice, basis);
    multi_round::zero_beyond(LARGEST_OF_UNIT, basis);
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{Sender, encode, f32s, residual, round_trip};
    use crate::{Encoder, Floats, Spec, Tensor};

    /// Four slices of four, the first and the third along the second axis, and a rest of two.
    /// Second moments are diag(1, 4 + 9, 1, 0): the first component is the second axis.
    #[rustfmt::skip]
    const AXES: [f32; 18] = [
        0.0, 2.0, 0.0, 0.0,
        0.0, 0.0, 1.0, 0.0,
        0.0, -3.0, 0.0, 0.0,
        1.0, 0.0, 0.0, 0.0,
        7.0, -8.0,
    ];

    #[test]
    fn slices_on_axes_worked_by_hand() {
        let spec = "gradiveq:slice=4,keep=1";
        // An axis may have either direction; the coefficients' signs follow.
        let mut sent = f32s(&encode(spec, &AXES));
        let direction = sent[1].signum();
        sent[..8].iter_mut().for_each(|x| *x *= direction);
        assert_eq!(sent, [0.0, 1.0, 0.0, 0.0, 2.0, 0.0, -3.0, 0.0, 7.0, -8.0]);
        let (mut decoded, mut left) = (AXES, [0.0; 18]);
        for other in [6, 12] {
            (decoded[other], left[other]) = (0.0, 1.0);
        }
        assert_eq!(round_trip(spec, &AXES), decoded);
        assert_eq!(residual(spec, &AXES), left);
    }

    #[test]
    fn a_basis_that_stays_worked_by_hand() {
        let mut sender = Sender::new("gradiveq:slice=4,keep=1", &[18]);
        sender.encode(0, &AXES);
        // With the residual the slices are (1, 2, 3, 4), (0, 0, 1, 0), 0 and (1, 5, 0, -1): the
        // second axis is no longer the first component, but it is the basis.
        let mut next = [0.0; 18];
        next[..4].copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        next[12..].copy_from_slice(&[0.0, 5.0, 0.0, -1.0, 0.5, 0.0]);
        let mut sent = f32s(&sender.encode(1, &next));
        let direction = sent[1].signum();
        sent[..8].iter_mut().for_each(|x| *x *= direction);
        assert_eq!(sent, [0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 5.0, 0.5, 0.0]);
        let mut left = [0.0; 18];
        (left[0], left[2], left[3], left[6]) = (1.0, 3.0, 4.0, 1.0);
        (left[12], left[15]) = (1.0, -1.0);
        assert_eq!(sender.residual(), left);
    }

    /// A step of two ranks by all-reduce; returns the decoded mean.
    fn step_of_two(ranks: &mut [Encoder; 2], step: u64, gradients: [[f32; 18]; 2]) -> Vec<f32> {
        let (tensor, mut means) = (Tensor::new("t", &[18]), Vec::new());
        for round in 0.. {
            let (mut sums, mut addend) = (Vec::new(), Vec::new());
            for (rank, gradient) in ranks.iter_mut().zip(&gradients) {
                let gradient = Floats::F32(gradient);
                let op =
                    rank.contribute(&tensor, step, round, gradient, &means, &mut addend).unwrap();
                if op.is_none() {
                    break;
                }
                sums.resize(addend.len(), 0.0);
                sums.iter_mut().zip(&addend).for_each(|(sum, x)| *sum += x);
            }
            if sums.is_empty() {
                break;
            }
            means.extend(sums.iter().map(|sum| sum / 2.0));
        }
        let mut decoded = Vec::new();
        for rank in ranks {
            decoded = vec![0.0; 18];
            rank.conclude(&tensor, step, &means, &mut decoded).unwrap();
        }
        decoded
    }

    #[test]
    fn means_of_two_ranks_worked_by_hand() {
        let spec: Spec = "gradiveq:slice=4,keep=1".parse().unwrap();
        let mut ranks = [0, 1].map(|rank| Encoder::new(&spec, 1, rank).with_ranks(2));
        // Off the second axis the ranks cancel; the refresh sends everything uncompressed.
        let (mut other, mut mean) = (AXES, AXES);
        (other[6], other[12]) = (-1.0, -1.0);
        (mean[6], mean[12]) = (0.0, 0.0);
        assert_eq!(step_of_two(&mut ranks, 0, [AXES, other]), mean);
        // Rank 0 sent the axis and rank 1 zeros: half an axis, scaled to length 1. Along it are 2
        // and 4.
        let (mut first, mut second) = ([0.0; 18], [0.0; 18]);
        first[..4].copy_from_slice(&[1.0, 2.0, 0.0, 0.0]);
        second[..4].copy_from_slice(&[0.0, 4.0, 6.0, 0.0]);
        mean = [0.0; 18];
        mean[1] = 3.0;
        assert_eq!(step_of_two(&mut ranks, 1, [first, second]), mean);
        (first[1], second[1]) = (0.0, 0.0);
        assert_eq!(ranks[0].residual("t").unwrap(), first);
        assert_eq!(ranks[1].residual("t").unwrap(), second);
    }

    #[test]
    fn threads_leave_the_same_blocks() {
        // A coefficient whose product overflows leaves its block of 64 slices unchanged, on
        // whichever thread.
        let tensor = Tensor::new("t", &[520 * 512]);
        let mut gradient = vec![1.0; tensor.elements()];
        gradient[100 * 512] = 1e37;
        let [alone, together] = [1, 3].map(|threads| {
            let mut encoder = Encoder::new(&"gradiveq".parse().unwrap(), 1, 0);
            encoder.use_threads(threads);
            let mut message = Vec::new();
            encoder.encode(&tensor, 0, Floats::F32(&gradient), &mut message).unwrap();
            (message, encoder.residual("t").unwrap().to_vec())
        });
        let left =
            |at: usize| alone.1[at * 512..(at + 1) * 512] == gradient[at * 512..(at + 1) * 512];
        assert!((64..128).all(left) && !(0..64).any(left) && !(128..520).any(left));
        assert!(alone == together);
    }

    #[test]
    fn exchanges_count_and_not_steps() {
        // With ten local steps the exchanges are at steps 9, 19, 29, …: no multiple of 3 · 10.
        let mut sender = Sender::new("gradiveq:slice=4,keep=1,refresh=3", &[18]);
        let along = |axis: usize| -> [f32; 18] {
            std::array::from_fn(|at| if at < 16 && at % 4 == axis { 1.0 } else { 0.0 })
        };
        let axes = (0..7).map(|exchange| {
            let message = sender.encode(10 * exchange as u64 + 9, &along(exchange / 3));
            f32s(&message)[..4].iter().position(|x| x.abs() > 0.5).unwrap()
        });
        // The basis is the first axis, then the second, then the third, each accumulated so far.
        assert_eq!(axes.collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1, 2]);
    }

    #[test]
    fn blocks_of_slices_are_coded_like_one_after_the_other() {
        // 150 slices of 512 are three blocks. With the same basis a slice has the same code alone
        // as in the tensor.
        let (slices, slice) = (150, 512);
        let draw = |at: usize| (at as u32).wrapping_mul(2_654_435_761) as i32 as f32 * 1e-9;
        let gradient: Vec<f32> = (0..slices * slice).map(draw).collect();
        let spec = "gradiveq:slice=512,keep=3";
        let sent = f32s(&encode(spec, &gradient));
        let (basis, coefficients) = sent.split_at(3 * slice);
        for at in 0..slices {
            let values = &gradient[at * slice..][..slice];
            for axis in 0..3 {
                let product = values.iter().zip(&basis[axis * slice..]);
                let expected: f64 = product.map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                let found = f64::from(coefficients[axis * slices + at]);
                assert!((found - expected).abs() < 1e-4, "{at}, {axis}: {found}, {expected}");
            }
        }
        let left = residual(spec, &gradient);
        let decoded = round_trip(spec, &gradient);
        assert!((0..left.len()).all(|at| (gradient[at] - decoded[at] - left[at]).abs() < 1e-5));
    }

    #[test]
    fn slices_in_the_span_of_the_basis_are_exact() {
        // 40 slices of 8 along two directions, and a rest of 3: 2 · (8 + 40) + 3 numbers.
        let mut gradient = Vec::new();
        for at in 0..40 {
            let (a, b) = (at as f32 - 20.0, (at * at % 7) as f32);
            gradient.extend([a, 2.0 * b, 0.0, -a, b, 0.0, a, -b]);
        }
        gradient.extend([0.5, -0.25, 1e-6]);
        let mut sender = Sender::new("gradiveq:slice=8,keep=2", &[gradient.len()]);
        let (message, out) = sender.send(0, &gradient);
        assert_eq!(message.len(), 4 * (2 * (8 + 40) + 3));
        for (x, y) in out.iter().zip(&gradient) {
            assert!((x - y).abs() <= 2e-5, "{x} for {y}");
        }
    }

    #[test]
    fn what_lies_outside_the_basis_is_kept() {
        // The first component is the first axis; a later gradient's part on the second stays in the
        // residual.
        let along = |axis: usize| -> Vec<f32> {
            (0..40).map(|i| if i % 4 == axis { 1.0 } else { 0.0 }).collect()
        };
        let mut sender = Sender::new("gradiveq:slice=4,keep=1", &[40]);
        for (step, axis, left) in [(0, 0, 0.0), (1, 1, 1.0)] {
            assert_eq!(sender.encode(step, &along(axis)).len(), 4 * (4 + 10));
            let residual = sender.residual();
            residual.iter().zip(along(1)).for_each(|(x, y)| assert!((x - left * y).abs() < 1e-6));
        }
    }
}
