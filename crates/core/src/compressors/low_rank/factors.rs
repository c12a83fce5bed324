//! The common part of methods with two thin factors: `C ≈ P·Qᵀ`, `P` all-reduced in the first
//! round, `Q` in the second.
//!
//! The first round starts from the stored `Q` of the previous step. Each round multiplies the
//! row-major gradient `C` by one factor to get the other; an [`Alternation`] says how.
//!
//! The transcript of a factored tensor is the mean of `P`, rows × rank, and the mean of `Q`,
//! columns × rank, both column by column. The transcript of any other tensor is its mean, in one
//! round.

use std::fmt::Debug;

use gradwire_bits::DecodeError;

use crate::multi_round::DeviceRounds;
use crate::multi_round::{self, KeptValues, MultiRound, RankState, Round, RoundContext};
use crate::numeric::matrix::{abs_max, add_product, dimensions, times, transposed_times};
use crate::{Context, Coverage, Helpers, Workspace};

/// The sizes of a tensor's factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Factors {
    pub(super) dimensions: [usize; 2],
    pub(super) rank: usize,
}

impl Factors {
    /// The factors of a tensor; `None` if it is sent uncompressed.
    pub(super) fn of(shape: &[usize], rank: usize) -> Option<Self> {
        let [rows, columns] = dimensions(shape)?;
        let smaller = (rows + columns).checked_mul(rank)? < rows.checked_mul(columns)?;
        smaller.then_some(Self { dimensions: [rows, columns], rank })
    }

    /// Numbers in the first factor.
    pub(super) fn first(&self) -> usize {
        self.dimensions[0] * self.rank
    }

    /// Numbers in the second.
    pub(super) fn second(&self) -> usize {
        self.dimensions[1] * self.rank
    }

    /// Both factors of a transcript.
    pub(super) fn split<'a>(&self, means: &'a [f32]) -> (&'a [f32], &'a [f32]) {
        means.split_at(self.first())
    }

    /// Refuses factors whose product could overflow; encoders send zeros instead.
    pub(super) fn check(&self, p: &[f32], q: &[f32]) -> Result<(), DecodeError> {
        let fits = abs_max(q) <= self.largest_second(p);
        fits.then_some(()).ok_or(DecodeError::Corrupt("the product of the factors overflows"))
    }

    /// The largest absolute value in a second factor at which no sum of products with `p`
    /// overflows.
    pub(super) fn largest_second(&self, p: &[f32]) -> f32 {
        f32::MAX / 2.0 / self.rank as f32 / abs_max(p).max(1.0)
    }

    /// Sets a second factor to zero if its product would overflow, or would leave infinities in
    /// `from`: then nothing is sent, and everything stays in the residual.
    pub(super) fn keep_in_range(&self, p: &[f32], q: &mut [f32], from: &[f32]) {
        multi_round::zero_beyond(self.largest_second(p), q);
        let product = f64::from(abs_max(q)) * f64::from(abs_max(p)) * self.rank as f64;
        // Less than half a unit in the last place of the largest float leaves every float finite.
        let half_a_unit = 2f64.powi(102);
        if product >= half_a_unit && product + f64::from(abs_max(from)) > f64::from(f32::MAX) {
            q.fill(0.0);
        }
    }

    /// Subtracts the product of the factors from the gradient. The helpers share the work.
    pub(super) fn subtract(&self, p: &[f32], q: &[f32], from: &mut [f32], helpers: &mut Helpers) {
        add_product(from, [p, q], self.rank, -1.0, helpers);
    }

    /// Adds `weight` times the product of the factors. The helpers share the work.
    pub(super) fn add(
        &self,
        p: &[f32],
        q: &[f32],
        weight: f32,
        out: &mut [f32],
        helpers: &mut Helpers,
    ) {
        add_product(out, [p, q], self.rank, weight, helpers);
    }
}

/// Fills columns of zeros (initially all) with draws from [−1, 1) that are the same on every rank;
/// otherwise they would stay zero.
pub(super) fn revive(columns: &mut [f32], rows: usize, context: &Context<'_>) {
    let rng = context.shared_rng(0);
    for (at, column) in columns.chunks_exact_mut(rows).enumerate() {
        if column.iter().all(|&x| x == 0.0) {
            let mut words = vec![0; rows];
            rng.fill_from(at * rows, &mut words);
            for (x, &word) in column.iter_mut().zip(&words) {
                *x = (word as i32 >> 8) as f32 / (1 << 23) as f32;
            }
        }
    }
}

/// The largest element of a column of norm 1, with room for rounding.
pub(super) const LARGEST_OF_UNIT: f32 = 2.0;

/// Refuses kept columns with an element too large for a column of norm 1.
pub(super) fn check_unit(columns: &[f32]) -> Result<(), String> {
    match columns.iter().position(|x| x.abs() > LARGEST_OF_UNIT) {
        None => Ok(()),
        Some(at) => Err(format!("element {at} is {}, but columns have norm 1", columns[at])),
    }
}

/// The number of elements of the square matrix whose factors of `rank` columns have `message_len`
/// bytes.
pub(super) fn max_elements(rank: usize, message_len: usize) -> usize {
    let side = message_len / 4 / rank / 2 + 1;
    side.saturating_mul(side).max(message_len / 4)
}

/// How a method with two factors computes them. Factors are stored column by column.
pub(super) trait Alternation: Debug + Send + Sync {
    /// The number of columns of either factor.
    fn rank(&self) -> usize;

    /// Turns the stored `Q` into the factor that multiplies `C`.
    fn before_first(&self, _q: &mut [f32], _columns: usize) {}

    /// Turns the mean of the first factors into `P`.
    fn after_first(&self, _p: &mut [f32], _rows: usize) {}

    /// Turns `P` into the factor that multiplies `Cᵀ`.
    fn before_second(&self, _p: &mut [f32], _rows: usize) {}

    /// Scales `Q` for the next step.
    fn normalise(&self, q: &mut [f32], columns: usize);

    /// Leaves the factor that multiplies `C` in the buffers.
    fn prepare_first(
        &self,
        factors: &Factors,
        kept: &mut [f32],
        context: &Context<'_>,
        FactorBuffers { operand, .. }: &mut FactorBuffers,
    ) {
        let columns = factors.dimensions[1];
        revive(kept, columns, context);
        copy(kept, operand);
        self.before_first(operand, columns);
    }

    /// Leaves `P` and the factor that multiplies `Cᵀ` in the buffers.
    fn prepare_second(
        &self,
        factors: &Factors,
        means: &[f32],
        FactorBuffers { p, operand }: &mut FactorBuffers,
    ) {
        let rows = factors.dimensions[0];
        copy(&means[..factors.first()], p);
        self.after_first(p, rows);
        copy(p, operand);
        self.before_second(operand, rows);
    }

    /// `P` and `Q` of a transcript, if their product does not overflow.
    fn checked<'a>(
        &self,
        factors: &Factors,
        means: &'a [f32],
        FactorBuffers { p, .. }: &'a mut FactorBuffers,
    ) -> Result<(&'a [f32], &'a [f32]), DecodeError> {
        let (first, q) = factors.split(means);
        p.clear();
        p.try_reserve(first.len())?;
        p.extend_from_slice(first);
        self.after_first(p, factors.dimensions[0]);
        factors.check(p, q)?;
        Ok((p, q))
    }
}

/// `P`, and a factor to multiply by.
#[derive(Debug, Default)]
pub(super) struct FactorBuffers {
    pub(super) p: Vec<f32>,
    pub(super) operand: Vec<f32>,
}

fn copy(from: &[f32], to: &mut Vec<f32>) {
    to.clear();
    to.extend_from_slice(from);
}

/// `Q` of the previous step.
impl<M: Alternation> KeptValues for M {
    fn len(&self, shape: &[usize]) -> usize {
        Factors::of(shape, self.rank()).map_or(0, |factors| factors.second())
    }
}

impl<M: Alternation> MultiRound for M {
    fn kept(&self) -> Option<&dyn KeptValues> {
        Some(self)
    }

    fn round(&self, context: &RoundContext<'_>, round: usize) -> Option<Round> {
        let len = match (Factors::of(context.context.shape, self.rank()), round) {
            (Some(factors), 0) => factors.first(),
            (Some(factors), 1) => factors.second(),
            (None, 0) => context.context.shape.iter().product(),
            _ => return None,
        };
        Some(Round::mean(len))
    }

    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>) {
        let Some(factors) = Factors::of(state.context.shape, self.rank()) else {
            return multi_round::contribute_raw(state, addend);
        };
        let (Factors { dimensions: [rows, columns], rank }, start) = (factors, addend.len());
        let Workspace { own, helpers, .. } = &mut *state.workspace;
        let buffers: &mut FactorBuffers = own.get();
        if round == 0 {
            self.prepare_first(&factors, state.kept, state.context, buffers);
            times(state.corrected, rows, &buffers.operand, rank, addend, helpers);
            multi_round::zero_beyond(f32::MAX, &mut addend[start..]);
        } else {
            self.prepare_second(&factors, state.means, buffers);
            transposed_times(state.corrected, columns, &buffers.operand, rank, addend, helpers);
            let q = &mut addend[start..];
            factors.keep_in_range(&buffers.p, q, state.corrected);
            factors.subtract(&buffers.p, q, state.corrected, helpers);
        }
    }

    fn settle(&self, state: &mut RankState<'_>) -> Coverage {
        if let Some(factors) = Factors::of(state.context.shape, self.rank()) {
            state.kept.copy_from_slice(factors.split(state.means).1);
            self.normalise(state.kept, factors.dimensions[1]);
        }
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
        let Some(factors) = Factors::of(context.context.shape, self.rank()) else {
            return multi_round::add_raw(means, weight, out);
        };
        let Workspace { own, helpers, .. } = workspace;
        let (p, q) = self.checked(&factors, means, own.get())?;
        factors.add(p, q, weight, out, helpers);
        Ok(())
    }

    fn max_elements(&self, message_len: usize) -> usize {
        max_elements(self.rank(), message_len)
    }

    fn device_rounds(&self) -> Option<&dyn DeviceRounds> {
        Some(self)
    }
}
