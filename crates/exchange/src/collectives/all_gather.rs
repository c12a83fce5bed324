//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and decodes `n` messages
//! of each tensor. It decodes in rank order, and holds its own messages and those of one other rank at a time. The
//! means replace its gradients. A rank that does not take part in a step sends an empty message. Uncompressed tensors
//! are gathered with the compressor `none`.

mod device;
mod host;
mod side;

use self::device::{DeviceGather, GatheredForms};
use self::host::HostGather;
use self::side::GatherSide;
use super::collective::Collective;
use super::reduction::Reduction;
use crate::{DeviceGroup, Phase, Result};

/// Averages by all-gather; see the [module](self).
#[derive(Default)]
pub(crate) struct AllGather {
    /// This rank's messages of one step.
    own: Vec<u8>,
    /// The messages of another rank.
    received: Vec<u8>,
    message: Vec<u8>,
    device: GatheredForms,
}

impl Collective for AllGather {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let Self { own, received, message, .. } = self;
        gather(step, &mut HostGather { values, message }, own, received)
    }

    fn reduce_device(
        &mut self,
        step: &mut Reduction<'_>,
        device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        let Self { own, received, message, device: memory } = self;
        gather(step, &mut DeviceGather { device, message, memory }, own, received)
    }
}

fn gather(
    step: &mut Reduction<'_>,
    side: &mut dyn GatherSide,
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
