//! Accumulators: sums of messages that are not sums of elements, but of the coefficients of a transform, or sums with counts.

use gradwire_bits::DecodeError;

use crate::{Context, DecodeArgs, Workspace};

/// Adds up the messages of all ranks before the tensor is computed: once from the sums, and not once for each message.
///
/// [`Compressor::decode_add`](crate::Compressor::decode_add) of a single message gives the same as an accumulator with
/// this message alone.
pub trait Accumulator {
    /// The number of sums for a tensor of this shape; all are 0 before the first message.
    fn sums(&self, shape: &[usize]) -> usize;

    /// Adds a message with its weight to the sums, which are `out` in the arguments. An error leaves them as they were.
    fn accumulate(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError>;

    /// Adds `weight` times the tensor that the sums stand for to `out`.
    ///
    /// # Errors
    /// [`DecodeError::OutOfMemory`]; `out` has not changed then.
    fn finish(
        &self,
        sums: &[f32],
        context: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError>;
}

/// Sums for means of each number over the ranks that sent it: those of values times weights, then those of weights.
pub(crate) fn add_sent(sums: &mut [f32], weight: f32, sent: impl Iterator<Item = (usize, f32)>) {
    let (values, weights) = sums.split_at_mut(sums.len() / 2);
    for (at, value) in sent {
        values[at] += weight * value;
        weights[at] += weight;
    }
}

/// The means over the ranks that sent a number, with their positions; nothing of numbers that no rank sent.
pub(crate) fn means_of_sent(sums: &[f32]) -> impl Iterator<Item = (usize, f32)> {
    let (values, weights) = sums.split_at(sums.len() / 2);
    let pairs = values.iter().zip(weights).enumerate();
    pairs
        .filter(|(_, (_, weight))| **weight > 0.0)
        .map(|(at, (value, weight))| (at, value / weight))
}
