//! Methods that all ranks carry out together, in rounds of all-reduce.
//!
//! Low-rank factors and sketches add, but not in a single all-reduce: what a rank computes in the second round
//! depends on the mean of the first. Such a method implements [`Rounds`]: it says what this rank adds in each round,
//! and what the means of all rounds, its *transcript*, decode to. The driver does the exchange; the method
//! calls no collective. Under exchanges without all-reduce every sender makes all rounds by itself
//! ([`SingleRank`](crate::SingleRank)), and the transcript is its message.

use std::fmt::Debug;

use gradwire_bits::{DecodeError, kernels};

use crate::{Context, Sent, Workspace};

/// A method in rounds of all-reduce. A transcript holds the means of its rounds, one after the other.
///
/// What ranks compute of means must not depend on the machine, or replicas drift apart: it is done in
/// plain loops. Addends may come from a linear algebra library.
pub trait Rounds: Debug + Send + Sync {
    /// Numbers kept for a tensor from step to step, zeros at first, such as factors to start from. Under
    /// all-reduce they are the same on all ranks.
    fn kept_len(&self, shape: &[usize]) -> usize;

    /// Parameters that change the meaning of the kept numbers without changing how many they are.
    fn layout(&self) -> [usize; 2] {
        [0; 2]
    }

    /// Numbers in each rank's addend of a round; `None` after the last round. All ranks must compute the same
    /// length.
    fn addend_len(&self, context: &RoundContext<'_>, round: usize) -> Option<usize>;

    /// Appends this rank's addend of a round.
    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>);

    /// Takes what this rank's addends carried from the corrected gradient, and keeps what the next step
    /// starts from. Called with the whole transcript, right after it was decoded, or on a single rank right after
    /// the last addend: what either left in the workspace is still there.
    fn settle(&self, state: &mut RankState<'_>) -> Sent;

    /// Adds `weight` times what a transcript decodes to to `out`; nothing, if it is refused.
    fn decode_add(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError>;

    /// As [`Compressor::max_elements`](crate::Compressor::max_elements), for the transcript of a single rank.
    fn max_elements(&self, message_len: usize) -> usize;
}

/// What all ranks know of a tensor's rounds.
#[derive(Debug, Clone, Copy)]
pub struct RoundContext<'a> {
    /// Which tensor, rank and step it is. Draws that all ranks share come from its shared generator.
    pub context: &'a Context<'a>,
    /// What is [kept](Rounds::kept_len); empty where the transcript came from a single rank.
    pub kept: &'a [f32],
    /// Whether a single rank makes all rounds, so that its transcript must hold everything.
    pub single_rank: bool,
}

/// What one rank works on in a tensor's rounds.
#[derive(Debug)]
pub struct RankState<'a> {
    /// The corrected gradient. What is left of it in the end is the residual.
    pub corrected: &'a mut [f32],
    /// What is [kept](Rounds::kept_len).
    pub kept: &'a mut [f32],
    /// The means of the rounds before, in the end the whole transcript.
    pub means: &'a [f32],
    /// Which tensor, rank and step it is.
    pub context: &'a Context<'a>,
    /// As [`RoundContext::single_rank`].
    pub single_rank: bool,
    /// Buffers.
    pub workspace: &'a mut Workspace,
}

impl RankState<'_> {
    /// What all ranks know.
    pub fn round_context(&self) -> RoundContext<'_> {
        RoundContext { context: self.context, kept: self.kept, single_rank: self.single_rank }
    }
}

/// The addend of a tensor that is sent uncompressed; nothing of it is left.
pub(crate) fn contribute_raw(state: &mut RankState<'_>, addend: &mut Vec<f32>) {
    addend.extend_from_slice(state.corrected);
    state.corrected.fill(0.0);
}

/// Adds a tensor that was sent uncompressed.
pub(crate) fn add_raw(means: &[f32], weight: f32, out: &mut [f32]) -> Result<(), DecodeError> {
    kernels::add_scaled(out, means, weight);
    Ok(())
}

/// Sets an addend to zero that has a number beyond `largest`, or NaN.
pub(crate) fn zero_beyond(largest: f32, addend: &mut [f32]) {
    // NaN has a greater pattern than any number.
    if kernels::abs_max_bits(addend) > largest.to_bits() {
        addend.fill(0.0);
    }
}
