//! Methods that all ranks carry out together, in rounds of all-reduce.
//!
//! Low-rank factors and sketches add, but not in one go: what a rank computes in the second round depends
//! on the mean of the first. Such a method implements [`Rounds`]: it says what this rank adds in each round,
//! and what the means of all rounds, its *transcript*, decode to. The driver does the exchange; the method
//! calls no collective. Where the exchange is none of all-reduce, every sender plays all rounds [`Alone`],
//! and the transcript is its message.

use std::fmt::Debug;

use gradwire_bits::{DecodeError, kernels};

use crate::compressors::fields;
use crate::{BLOCK, Compressor, Context, Sent, Source, Workspace};

/// A method in rounds of all-reduce. A transcript holds the means of its rounds, one behind the other.
///
/// What ranks compute of means must not depend on the machine, or replicas drift apart: it is done in
/// plain loops. Addends may come from a library of linear algebra.
pub trait Rounds: Debug + Send + Sync {
    /// Numbers kept for a tensor from step to step, zeros at first, such as factors to start from. Under
    /// all-reduce they are the same on all ranks.
    fn kept_len(&self, shape: &[usize]) -> usize;

    /// What the numbers kept depend on beside the shape, where their number does not tell.
    fn layout(&self) -> [usize; 2] {
        [0; 2]
    }

    /// Numbers in each rank's addend of a round; `None` after the last round. It depends on nothing that
    /// ranks differ in.
    fn addend_len(&self, plan: &Plan<'_>, round: usize) -> Option<usize>;

    /// Appends this rank's addend of a round, given the means of the rounds before.
    fn contribute(&self, round: usize, means: &[f32], job: &mut Job<'_>, addend: &mut Vec<f32>);

    /// Takes what this rank's addends carried from the corrected gradient, and keeps what the next step
    /// starts from. Called with the whole transcript, right after it was decoded, or on a rank on its own right after
    /// the last addend: what either left in the workspace is still there.
    fn settle(&self, means: &[f32], job: &mut Job<'_>) -> Sent;

    /// Adds `weight` times what a transcript decodes to to `out`; nothing, if it is refused.
    fn decode_add(
        &self,
        means: &[f32],
        plan: &Plan<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError>;

    /// As [`Compressor::max_elements`], for the transcript of a rank on its own.
    fn max_elements(&self, message_len: usize) -> usize;
}

/// What all ranks know of a tensor's rounds.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Whose, and when. Draws that all ranks share come from its shared generator.
    pub context: &'a Context<'a>,
    /// What is [kept](Rounds::kept_len); empty where the transcript came from a rank on its own.
    pub kept: &'a [f32],
    /// Whether a rank plays all rounds by itself, so that its transcript must tell all.
    pub alone: bool,
}

/// What a rank works on.
#[derive(Debug)]
pub struct Job<'a> {
    /// The corrected gradient. What is left of it in the end is the residual.
    pub corrected: &'a mut [f32],
    /// What is [kept](Rounds::kept_len).
    pub kept: &'a mut [f32],
    /// Whose, and when.
    pub context: &'a Context<'a>,
    /// As [`Plan::alone`].
    pub alone: bool,
    /// Buffers; those of its field `rounds` are in use.
    pub workspace: &'a mut Workspace,
}

impl Job<'_> {
    /// What all ranks know of it.
    pub fn plan(&self) -> Plan<'_> {
        Plan { context: self.context, kept: self.kept, alone: self.alone }
    }
}

/// Buffers of a rank that plays rounds.
#[derive(Debug, Default)]
pub struct Played {
    /// A corrected gradient that is no residual.
    pub(crate) corrected: Vec<f32>,
    means: Vec<f32>,
    addend: Vec<f32>,
}

/// A method in rounds as a compressor of its own: its message is the transcript of a single rank,
/// little-endian `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alone<R>(pub R);

impl<R: Rounds> Compressor for Alone<R> {
    fn encode(
        &self,
        source: &mut Source<'_>,
        context: &Context<'_>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Sent {
        let mut played = std::mem::take(&mut workspace.rounds);
        let Played { corrected, means, addend } = &mut played;
        let (corrected, kept) = source.take_all(corrected);
        let mut job = Job { corrected, kept, context, alone: true, workspace };
        means.clear();
        for round in 0.. {
            let Some(len) = self.0.addend_len(&job.plan(), round) else { break };
            addend.clear();
            self.0.contribute(round, means, &mut job, addend);
            debug_assert_eq!(addend.len(), len);
            means.extend_from_slice(addend);
        }
        let sent = self.0.settle(means, &mut job);
        means.chunks(BLOCK).for_each(|block| fields::put_f32s(block, message));
        workspace.rounds = played;
        sent
    }

    fn decode_add(
        &self,
        message: &[u8],
        context: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let plan = Plan { context, kept: &[], alone: true };
        let lens = (0..).map_while(|round| self.0.addend_len(&plan, round));
        let len: usize = lens.sum();
        fields::expect_len(message, 4 * len)?;
        let mut means = std::mem::take(&mut workspace.rounds.means);
        means.resize(len, 0.0);
        fields::read_f32s(message, &mut means);
        let decoded = match means.iter().all(|x| x.is_finite()) {
            true => self.0.decode_add(&means, &plan, weight, workspace, out),
            false => Err(DecodeError::Corrupt("a number is not finite")),
        };
        workspace.rounds.means = means;
        decoded
    }

    fn max_len(&self, elements: usize) -> usize {
        // Whatever a method would not shrink travels as it is.
        elements.saturating_mul(4)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.0.max_elements(message_len)
    }

    fn rounds(&self) -> Option<&dyn Rounds> {
        Some(&self.0)
    }
}

/// The addend of a tensor that travels as it is; nothing of it is left.
pub(crate) fn contribute_raw(job: &mut Job<'_>, addend: &mut Vec<f32>) {
    addend.extend_from_slice(job.corrected);
    job.corrected.fill(0.0);
}

/// Adds a tensor that travelled as it is.
pub(crate) fn add_raw(means: &[f32], weight: f32, out: &mut [f32]) -> Result<(), DecodeError> {
    kernels::add_scaled(out, means, weight);
    Ok(())
}

/// Makes an addend zero that has a number beyond `largest`, or none at all.
pub(crate) fn zero_beyond(largest: f32, addend: &mut [f32]) {
    // NaN has a greater pattern than any number.
    if kernels::abs_max_bits(addend) > largest.to_bits() {
        addend.fill(0.0);
    }
}
