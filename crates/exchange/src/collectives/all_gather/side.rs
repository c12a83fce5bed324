//! What differs between compression by this process and by a device.

use crate::Result;
use crate::collectives::reduction::Reduction;

/// Where a group is compressed and its messages are added.
pub(super) trait GatherSide {
    /// Replaces `packed` by the messages for all tensors.
    fn encode(&mut self, step: &mut Reduction<'_>, packed: &mut Vec<u8>) -> Result<()>;

    /// Adds the messages of a rank to the means, times its weight. A rank of weight 0 sent nothing.
    fn add(
        &mut self,
        step: &mut Reduction<'_>,
        rank: usize,
        weight: f32,
        packed: &[u8],
    ) -> Result<()>;

    /// Turns the means into the input of the optimizer.
    fn finish(&mut self, step: &mut Reduction<'_>) -> Result<()>;
}
