//! All-gather of the messages of tensors that this process compresses.

use super::side::GatherSide;
use crate::codecs::Sender;
use crate::collectives::reduction::Reduction;
use crate::{Phase, Result};

/// Compression by this process, of values that become the means.
pub(super) struct HostGather<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) message: &'a mut Vec<u8>,
}

impl GatherSide for HostGather<'_> {
    fn encode(&mut self, step: &mut Reduction<'_>, packed: &mut Vec<u8>) -> Result<()> {
        step.encode_all(self.values, packed, self.message)
    }

    fn add(
        &mut self,
        step: &mut Reduction<'_>,
        rank: usize,
        weight: f32,
        packed: &[u8],
    ) -> Result<()> {
        if rank == 0 {
            self.values.fill(0.0);
        }
        let (sender, pieces) = (Sender::one_of_all(rank, weight), step.group.pieces());
        step.decode_all(Phase::Gather, sender, packed, pieces, self.values)
    }

    fn finish(&mut self, step: &mut Reduction<'_>) -> Result<()> {
        step.aggregate(self.values)
    }
}
