//! Gathering of shards: every rank gets the shards of all ranks, compressed once.
//!
//! The values of a group are the shards of all ranks, as in [reduce-scatter](super::reduce_scatter), and nothing is
//! averaged: every rank compresses its own chunk of each tensor, sends it to all, and decodes the chunks of all, its own
//! included, so that all ranks have the same bits. For parameters, which are sent whole each time: what a message leaves
//! out is not kept. With messages of `b` bytes in all, a rank sends `b·(n − 1)/n` bytes and receives as many.

use std::ops::Range;

use gradwire::{Floats, Input};

use super::slices::{self, Shards, Slice};
use super::{Collective, Group, Reduction, packed};
use crate::codecs::Codecs;
use crate::{GroupConfig, Operation, Phase, Result};

/// Gathers shards; see the [module](self).
pub(crate) struct GatherShards {
    shards: Shards,
    slices: Vec<Vec<Slice>>,
    /// The messages of each rank.
    gathered: Vec<Vec<u8>>,
    message: Vec<u8>,
}

impl GatherShards {
    pub(crate) fn new(config: &GroupConfig<'_>, codecs: &mut Codecs) -> Self {
        let shards = Shards { ranks: config.workers };
        let slices = shards.cut(config.tensors);
        codecs.cut(slices::names(&slices));
        let gathered = vec![Vec::new(); config.workers];
        Self { shards, slices, gathered, message: Vec::new() }
    }

    fn encode(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        let rank = step.transport.rank();
        self.gathered[rank].clear();
        for (at, &index) in step.group.indices.iter().enumerate() {
            for slice in self.slices[index].iter().filter(|slice| slice.owner == rank) {
                let input = Input::from(Floats::F32(&values[place(at, slice)]));
                let start = (index, slice.range.start);
                step.codecs.encode(start, &slice.tensor, step.step, input, &mut self.message)?;
                packed::append(&self.message, &mut self.gathered[rank]);
            }
        }
        Ok(())
    }

    fn decode(
        &self,
        step: &mut Reduction<'_>,
        values: &mut [f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        for (owner, packed) in self.gathered.iter().enumerate() {
            let mut read = 0;
            for (at, &index) in step.group.indices.iter().enumerate() {
                for slice in self.slices[index].iter().filter(|slice| slice.owner == owner) {
                    let tensor = &slice.tensor;
                    let operation =
                        Operation::tensor(Phase::Gather, index, tensor.name(), step.step);
                    let message = packed::next(owner, packed, &mut read, operation)?;
                    let out = &mut values[place(at, slice)];
                    step.codecs.decode_add(tensor, (step.step, owner), message, 1.0, out)?;
                }
            }
            packed::finish(owner, packed, read, step.operation(Phase::Gather))?;
        }
        Ok(())
    }
}

impl Collective for GatherShards {
    fn values(&self, group: &Group) -> usize {
        self.shards.values(&group.tensors)
    }

    /// In: this rank's shard of `values`. Out: all shards.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let place = self.shards.places(&step.group.tensors);
        step.compress(|step| self.encode(step, values, &place))?;
        let operation = step.operation(Phase::Gather);
        step.wire(|transport| transport.all_gather_v(operation, &mut self.gathered))?;
        values.fill(0.0);
        step.decompress(|step| self.decode(step, values, &place))
    }
}
