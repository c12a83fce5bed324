//! All-reduce: messages of linear compressors are averaged on their way, and so are the addends of methods in
//! [rounds](gradwire::MultiRound).
//!
//! The messages of all tensors are concatenated and cut into `n` parts. Every rank averages one part
//! and sends the mean to all. Two phases; with messages of `b` bytes in all, a rank sends and
//! receives about `2·b·(n − 1)/n` bytes.
//!
//! A method in rounds takes two phases per round. A round may ask for the largest values in place of the mean, or for sums of
//! integers, which travel packed. The addends of its first round travel with the messages of the other
//! tensors; the addends of later rounds follow when all means of the previous round are known.
//!
//! Messages and addends come from this process or from a [device](DeviceGroup).

mod device;
mod host;
mod side;

use self::device::{DeviceMemory, DeviceReduce};
use self::host::{HostMemory, HostReduce};
use self::side::ReduceSide;
use super::collective::Collective;
use super::reduction::Reduction;
use crate::mean::MeanBuffer;
use crate::{DeviceGroup, Result};

/// Averages by all-reduce; see the [module](self).
pub(crate) struct AllReduce {
    means: MeanBuffer,
    host: HostMemory,
    device: DeviceMemory,
}

impl AllReduce {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            means: MeanBuffer::new(ranks),
            host: HostMemory::default(),
            device: DeviceMemory::default(),
        }
    }
}

impl Collective for AllReduce {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let Self { means, host: memory, .. } = self;
        average(step, means, &mut HostReduce { values, memory })
    }

    fn reduce_device(
        &mut self,
        step: &mut Reduction<'_>,
        device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        let Self { means, device: memory, .. } = self;
        average(step, means, &mut DeviceReduce { device, memory })
    }
}

fn average(
    step: &mut Reduction<'_>,
    means: &mut MeanBuffer,
    side: &mut dyn ReduceSide,
) -> Result<()> {
    let weights = if step.equal { &[][..] } else { step.weights };
    means.clear();
    step.compress(|step| {
        side.encode(step, means)?;
        side.contribute(step, 0, means)
    })?;
    for round in 1.. {
        means.average(step.transport, step.step, weights, step.report)?;
        step.compress(|step| side.contribute(step, round, means))?;
        if means.is_averaged() {
            break;
        }
    }
    step.decompress(|step| side.decode(step, means))
}
