//! Multi-round methods, which all ranks compute together in rounds of all-reduce.
//!
//! Low-rank factors and sketches can be summed, but not in a single all-reduce: the second round
//! depends on the mean of the first. Such a method implements [`MultiRound`]: it computes this
//! rank's addend in each round, and decodes the *transcript*, which is the means of all rounds. A
//! round may also ask for the largest values, or for sums of integers ([`ReduceOp`]). The caller
//! does the exchange; the method calls no collective. Under exchanges without all-reduce, every
//! sender runs all rounds alone ([`SingleRank`](crate::SingleRank)), and the transcript is its
//! message.

use std::fmt::Debug;

use gradwire_bits::{DecodeError, kernels};

use crate::{Context, Coverage, Workspace};

/// How a round combines the addends of all ranks, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOp {
    /// The mean of `f32` values.
    Mean,
    /// The largest of `f32` values.
    Max,
    /// The mean of integers from this table, whose length is a power of two from 2 to 256. Addends
    /// are indices into the table, sent in as few bits as indices need. The integers are added, and
    /// their sum is sent in as many bits as the largest possible sum needs.
    TableMean(&'static [u8]),
}

impl ReduceOp {
    /// Bits of an element of an addend.
    pub fn bits(self) -> u32 {
        match self {
            ReduceOp::Mean | ReduceOp::Max => 32,
            ReduceOp::TableMean(table) => table.len().ilog2(),
        }
    }

    /// Bytes of an addend of `len` elements.
    pub fn bytes(self, len: usize) -> usize {
        (len as u128 * u128::from(self.bits())).div_ceil(8).min(usize::MAX as u128 / 2) as usize
    }
}

/// The addends of a round, one from each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// The number of elements of an addend.
    pub len: usize,
    /// How addends are combined.
    pub op: ReduceOp,
}

impl Round {
    /// A round of the mean of `len` values.
    pub fn mean(len: usize) -> Self {
        Self { len, op: ReduceOp::Mean }
    }

    /// Bytes of an addend.
    pub fn bytes(self) -> usize {
        self.op.bytes(self.len)
    }
}

/// A multi-round method. A transcript contains the means of its rounds, one after the other.
///
/// Results computed from means must be equal on every machine, or replicas diverge: compute them in
/// plain loops. Addends may use a linear algebra library.
pub trait MultiRound: Debug + Send + Sync {
    /// The values that the method keeps for a tensor from step to step; `None` by default.
    fn kept(&self) -> Option<&dyn KeptValues> {
        None
    }

    /// The addends of a round; `None` after the last round. They must be equal on all ranks. Rounds
    /// are numbered from 0.
    fn round(&self, context: &RoundContext<'_>, round: usize) -> Option<Round>;

    /// Appends this rank's addend of a round.
    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>);

    /// Subtracts the content of this rank's addends from the corrected gradient, and updates the
    /// kept values. It is called with the whole transcript, right after decoding it or, on a single
    /// rank, right after the last addend. The workspace still has the content from there.
    fn settle(&self, state: &mut RankState<'_>) -> Coverage;

    /// Decodes a transcript and adds `weight` times the result to `out`. An error leaves `out`
    /// unchanged.
    fn decode_add(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError>;

    /// As [`Compressor::max_len`](crate::Compressor::max_len), for the transcript of a single rank.
    fn max_len(&self, elements: usize) -> usize {
        // A tensor that a method would not shrink is sent uncompressed.
        elements.saturating_mul(4)
    }

    /// As [`Compressor::max_elements`](crate::Compressor::max_elements), for the transcript of a
    /// single rank.
    fn max_elements(&self, message_len: usize) -> usize;

    /// The host's part if a device has the gradient; `None` for a host-only method.
    fn device_rounds(&self) -> Option<&dyn DeviceRounds> {
        None
    }
}

/// Values that a multi-round method keeps for a tensor from step to step, such as starting factors.
/// They are zeros at first. Under all-reduce they are equal on all ranks.
pub trait KeptValues {
    /// The number of values for a tensor of this shape.
    fn len(&self, shape: &[usize]) -> usize;

    /// Refuses values that no step produces, such as values from a damaged checkpoint: a step may
    /// turn them into a message that every receiver refuses. All values are finite. The error says
    /// what is wrong. Accepts all values by default.
    fn check(&self, _values: &[f32]) -> Result<(), String> {
        Ok(())
    }

    /// The parameters that determine the meaning of the values, besides their number; none by
    /// default.
    fn layout(&self) -> [usize; 2] {
        [0; 2]
    }
}

/// Computes the forms with which a device takes part in the [rounds](MultiRound) of all-reduce.
///
/// The device has the gradient and the residual; the host has the means, the kept values, and all
/// results that every rank computes alike. So ranks with and without a device may be mixed, and
/// replicas get the same bits.
pub trait DeviceRounds {
    /// Appends the data with which a device computes this rank's addend of a round and subtracts it
    /// from the residual.
    ///
    /// It changes the kept values and the workspace as [`contribute`](MultiRound::contribute) does.
    /// [`RankState::corrected`] is empty.
    fn round(&self, round: usize, state: &mut RankState<'_>, form: &mut Vec<u8>);

    /// Appends the result of a transcript, which a device adds to the mean, in a form that it can
    /// expand.
    ///
    /// # Errors
    /// As for [`decode_add`](MultiRound::decode_add); the bytes that were added to `form` are then
    /// unspecified.
    fn transcript(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        workspace: &mut Workspace,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError>;
}

/// The data about a tensor's rounds that all ranks have.
#[derive(Debug, Clone, Copy)]
pub struct RoundContext<'a> {
    /// Tensor, rank and step. Its shared generator gives all ranks the same draws.
    pub context: &'a Context<'a>,
    /// The [kept values](KeptValues); empty if the transcript is from a single rank.
    pub kept: &'a [f32],
    /// Whether a single rank runs all rounds, so its transcript must be complete.
    pub single_rank: bool,
}

/// The state of one rank in a tensor's rounds.
#[derive(Debug)]
pub struct RankState<'a> {
    /// The corrected gradient; in the end, the residual. Empty if a [device](crate::device) has it.
    pub corrected: &'a mut [f32],
    /// The [kept values](KeptValues).
    pub kept: &'a mut [f32],
    /// The means of the previous rounds; in the end, the
    /// whole transcript.
    pub means: &'a [f32],
    /// Tensor, rank and step.
    pub context: &'a Context<'a>,
    /// As [`RoundContext::single_rank`].
    pub single_rank: bool,
    /// Buffers.
    pub workspace: &'a mut Workspace,
}

impl RankState<'_> {
    /// The part of the state that all ranks have.
    pub fn round_context(&self) -> RoundContext<'_> {
        RoundContext { context: self.context, kept: self.kept, single_rank: self.single_rank }
    }
}

/// The rounds of a tensor.
pub(crate) fn rounds(
    method: &(impl MultiRound + ?Sized),
    context: &RoundContext<'_>,
) -> impl Iterator<Item = Round> {
    (0..).map_while(|round| method.round(context, round))
}

/// Appends the addend of a tensor that is sent uncompressed, and sets its residual to zero.
pub(crate) fn contribute_raw(state: &mut RankState<'_>, addend: &mut Vec<f32>) {
    addend.extend_from_slice(state.corrected);
    state.corrected.fill(0.0);
}

/// Adds a tensor that was sent uncompressed.
pub(crate) fn add_raw(means: &[f32], weight: f32, out: &mut [f32]) -> Result<(), DecodeError> {
    kernels::add_scaled(out, means, weight);
    Ok(())
}

/// Sets an addend to zero if it has a number beyond `largest`, or NaN.
pub(crate) fn zero_beyond(largest: f32, addend: &mut [f32]) {
    // NaN has a greater pattern than any number.
    if kernels::abs_max_bits(addend) > largest.to_bits() {
        addend.fill(0.0);
    }
}
