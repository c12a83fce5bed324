//! What the host computes in a multi-round method if the gradient is on a device.

use gradwire_bits::DecodeError;

use crate::Workspace;
use crate::multi_round::{RankState, RoundContext};

/// Computes the forms that a device needs to take part in the [rounds](crate::MultiRound) of all-reduce.
///
/// The device has the gradient and the residual; the host has the means, the kept values, and everything that all ranks
/// compute alike. So both sides may be mixed: replicas with and without a device get the same bits.
pub trait DeviceRounds {
    /// Appends what a device needs to compute this rank's addend of a round, and to take the addends out of the residual.
    ///
    /// It changes the kept values and the workspace as [`contribute`](crate::MultiRound::contribute) does.
    /// [`RankState::corrected`] is empty.
    fn round(&self, round: usize, state: &mut RankState<'_>, form: &mut Vec<u8>);

    /// Appends what a device adds to the mean: a transcript's result, in a form that it can expand.
    ///
    /// # Errors
    /// As for [`decode_add`](crate::MultiRound::decode_add); then `form` is unspecified behind its former end.
    fn transcript(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        workspace: &mut Workspace,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError>;
}
