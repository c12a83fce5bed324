//! All-reduce: messages of linear compressors are averaged on the way, and so are the addends of
//! methods in [rounds](gradwire::MultiRound).
//!
//! The messages of all tensors are concatenated and cut into `n` parts. Every rank averages one
//! part and sends the mean to all. Two phases; with messages of `b` bytes in all, a rank sends and
//! receives about `2·b·(n − 1)/n` bytes.
//!
//! A multi-round method takes two phases per round. A round may ask for the largest values instead
//! of the mean, or for sums of integers, which travel packed. The addends of its first round travel
//! with the messages of the other tensors. The addends of a later round follow when all means of
//! the previous round are known.
//!
//! Messages and addends come from this process or from a [device](crate::DeviceGroup). If all
//! values of a group travel as they are, their means replace them without messages in between.

mod as_they_are;
mod device;
mod host;

use bytemuck::cast_slice_mut;

use self::device::Device;
use self::host::Host;
use super::collective::{Collective, Reduction};
use crate::Result;
use crate::device::Values;
use crate::mean::{InPlace, MeanBuffer, Terms};

/// Averages by all-reduce; see the [module](self).
pub(crate) struct AllReduce {
    means: MeanBuffer,
    host: Host,
    device: Device,
    in_place: InPlace,
}

impl AllReduce {
    pub(crate) fn new(ranks: usize) -> Self {
        let means = MeanBuffer::new(ranks);
        Self {
            means,
            host: Host::default(),
            device: Device::default(),
            in_place: InPlace::default(),
        }
    }

    /// Adds the messages of all tensors that are not averaged in rounds.
    fn encode(&mut self, step: &mut Reduction<'_>, values: &mut Values<'_>) -> Result<()> {
        let Self { means, device, .. } = self;
        match values {
            Values::Host(values) => Host::encode(step, values, means),
            Values::Device(group) => device.encode(step, *group, means),
        }
    }

    /// Adds the addends of a round, for the tensors that have this round.
    fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        values: &mut Values<'_>,
    ) -> Result<()> {
        let Self { means, host, device, .. } = self;
        match values {
            Values::Host(values) => host.contribute(step, round, values, means),
            Values::Device(group) => device.contribute(step, round, *group, means),
        }
    }

    /// Averages the little-endian elements of tensors that are sent as they are.
    fn average_in_place(&mut self, step: &mut Reduction<'_>, values: &mut [u8]) -> Result<()> {
        step.compress(|step| as_they_are::check(step, values))?;
        let mut divisor = step.transport.size() as u32;
        if step.factor == divisor as f32 {
            // Sums instead of means.
            (divisor, step.factor) = (1, 1.0);
        }
        let terms = Terms { values, dtype: step.group.dtype, divisor };
        self.in_place.average(step.transport, step.step, terms, step.report)
    }

    /// Decodes the means of all tensors.
    fn decode(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()> {
        let Self { means, device, .. } = self;
        match values {
            Values::Host(values) => host::decode(step, values, means),
            Values::Device(group) => device.decode(step, group, means),
        }
    }
}

impl Collective for AllReduce {
    fn reduce(&mut self, step: &mut Reduction<'_>, mut values: Values<'_>) -> Result<()> {
        if let Values::Host(values) = &mut values
            && as_they_are::travel(step)
        {
            return self.average_in_place(step, cast_slice_mut(values));
        }
        let weights = if step.equal { &[][..] } else { step.weights };
        self.means.clear();
        step.compress(|step| {
            self.encode(step, &mut values)?;
            self.contribute(step, 0, &mut values)
        })?;
        for round in 1.. {
            self.means.average(step.transport, step.step, weights, step.report)?;
            step.compress(|step| self.contribute(step, round, &mut values))?;
            if self.means.is_averaged() {
                break;
            }
        }
        step.decompress(|step| self.decode(step, values))
    }

    fn reduce_halves(&mut self, step: &mut Reduction<'_>, values: &mut [u16]) -> Result<()> {
        self.average_in_place(step, cast_slice_mut(values))
    }
}
