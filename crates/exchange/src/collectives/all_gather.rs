//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and decodes `n` messages
//! of each tensor. It decodes in rank order, and holds its own messages and those of one other rank at a time. The
//! means replace its gradients. A rank that does not take part in a step sends an empty message. Uncompressed tensors
//! are gathered with the compressor `none`.

mod device;

use self::device::Device;
use super::{Collective, Reduction};
use crate::codecs::Sender;
use crate::reducer::DeviceGroup;
use crate::{Phase, Result};

/// Averages by all-gather; see the [module](self).
#[derive(Default)]
pub(crate) struct AllGather {
    /// This rank's messages of one step.
    own: Vec<u8>,
    /// The messages of another rank.
    received: Vec<u8>,
    message: Vec<u8>,
    device: device::Buffers,
}

impl Collective for AllGather {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let Self { own, received, message, .. } = self;
        gather(step, &mut Host { values, message }, own, received)
    }

    fn reduce_device(
        &mut self,
        step: &mut Reduction<'_>,
        device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        let Self { own, received, message, device: buffers } = self;
        gather(step, &mut Device { device, message, buffers }, own, received)
    }
}

/// Where a group is compressed and its messages are added.
trait Side {
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

fn gather(
    step: &mut Reduction<'_>,
    side: &mut dyn Side,
    own: &mut Vec<u8>,
    received: &mut Vec<u8>,
) -> Result<()> {
    let operation = step.operation(Phase::Gather);
    let rank = step.transport.rank();
    own.clear();
    if step.weights[rank] != 0.0 {
        step.compress(|step| side.encode(step, own))?;
    }
    step.wire(|transport| transport.send_to_others(operation, own))?;
    for from in 0..step.transport.size() {
        if from != rank {
            step.wire(|transport| transport.recv(from, operation, received))?;
        }
        let packed = if from == rank { &*own } else { &*received };
        let weight = step.weights[from];
        step.decompress(|step| side.add(step, from, weight, packed))?;
    }
    step.decompress(|step| side.finish(step))
}

/// Compression by this process, of values that become the means.
struct Host<'a> {
    values: &'a mut [f32],
    message: &'a mut Vec<u8>,
}

impl Side for Host<'_> {
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
