//! Accumulators: sums of messages other than elementwise sums, such as sums of transform
//! coefficients, or sums with counts.

use gradwire_bits::DecodeError;

use crate::{Context, DecodeArgs, Helpers, Workspace};

/// Adds up the messages of all ranks, so the tensor is computed once from the sums instead of once
/// per message.
///
/// [`Compressor::decode_add`](crate::Compressor::decode_add) of a single message gives the same
/// result as an accumulator with only this message.
pub trait Accumulator {
    /// The number of sums for a tensor of this shape; all are 0 before the first message.
    fn sums(&self, shape: &[usize]) -> usize;

    /// Adds a message with its weight to the sums, which are `out` in the arguments. An error
    /// leaves them unchanged.
    fn accumulate(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError>;

    /// Adds `weight` times the tensor of the sums to `out`.
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

/// Adds a message to sums from which each number is averaged over the ranks that sent it: first the
/// sums of values times weights, then the sums of weights. The message has the value of an item at
/// each position; positions increase. The helpers share the work.
pub(crate) fn add_sent<T: Copy + Sync>(
    sums: &mut [f32],
    weight: f32,
    (positions, items): (&[u32], &[T]),
    value: impl Fn(T) -> f32 + Sync,
    helpers: &mut Helpers,
) {
    let (values, weights) = sums.split_at_mut(sums.len() / 2);
    if helpers.count() == 0 {
        // One pass takes less time.
        for (&at, &item) in positions.iter().zip(items) {
            values[at as usize] += weight * value(item);
            weights[at as usize] += weight;
        }
        return;
    }
    helpers.add_at(positions, items, values, |item| weight * value(item));
    helpers.add_at(positions, items, weights, |_| weight);
}
