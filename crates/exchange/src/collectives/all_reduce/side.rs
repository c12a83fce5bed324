//! What differs between compression by this process and by a device.

use crate::Result;
use crate::collectives::reduction::Reduction;
use crate::mean::MeanBuffer;

/// Where a group is compressed and its mean is decoded.
pub(super) trait ReduceSide {
    /// Adds the messages of all tensors that are not averaged in rounds.
    fn encode(&mut self, step: &mut Reduction<'_>, means: &mut MeanBuffer) -> Result<()>;

    /// Adds the addends of a round, for the tensors that have this round.
    fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        means: &mut MeanBuffer,
    ) -> Result<()>;

    /// Decodes the means of all tensors.
    fn decode(&mut self, step: &mut Reduction<'_>, means: &mut MeanBuffer) -> Result<()>;
}
