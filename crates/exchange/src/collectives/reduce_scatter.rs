//! Reduce-scatter: every rank gets the mean of its own shard of the model.
//!
//! Each tensor is cut into chunks of whole rows, one for each rank, as FSDP2 of PyTorch shards
//! parameters. Chunk r of all tensors of a group, one after the other, is the shard of rank r. A
//! group's values are the shards of all ranks in rank order; a chunk with fewer rows than others is
//! padded to their length. Every rank compresses each chunk for its owner, as a tensor called
//! `name[a..b]` with its own residual and random draws. The owner averages the chunks that it
//! receives. The mean is not compressed again. One phase; with messages of `b` bytes in all, a rank
//! sends and receives about `b·(n − 1)/n` bytes.

use std::ops::Range;

use gradwire::Tensor;

use super::collective::{Collective, Reduction};
use super::scatter::Scatter;
use super::slices::{self, Shards};
use crate::codecs::Codecs;
use crate::device::Values;
use crate::group::Group;
use crate::{GroupConfig, Result};

/// Averages shards by reduce-scatter; see the [module](self).
pub(crate) struct ReduceScatter {
    shards: Shards,
    scatter: Scatter,
}

impl ReduceScatter {
    pub(crate) fn new(config: &GroupConfig<'_>, codecs: &mut Codecs) -> Self {
        let shards = Shards { ranks: config.workers() };
        let slices = shards.cut(config.tensors);
        codecs.cut(slices::names(&slices));
        Self { shards, scatter: Scatter::new(slices, config.workers()) }
    }
}

impl Collective for ReduceScatter {
    fn add(&mut self, tensor: &Tensor, codecs: &mut Codecs) {
        self.scatter.add(self.shards.cut_tensor(tensor), codecs);
    }

    fn values(&self, group: &Group) -> usize {
        self.shards.values(&group.tensors)
    }

    fn each_place(&self, group: &Group, see: &mut dyn FnMut(usize, Range<usize>)) {
        self.shards.each_place(&group.tensors, see);
    }

    fn tells_non_finite(&self) -> bool {
        true
    }

    /// Out: this rank's shard of `values` holds its mean. Other shards are unspecified.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()> {
        let values = values.on_host()?;
        let place = self.shards.places(&step.group.tensors);
        self.scatter.scatter(step, values, &place)?;
        if !step.finite {
            return Ok(());
        }
        let factor = step.take_factor();
        self.scatter.average(step, factor, |_, one, mean| {
            values[place(one.at, one.slice)].copy_from_slice(mean);
            Ok(())
        })
    }
}
