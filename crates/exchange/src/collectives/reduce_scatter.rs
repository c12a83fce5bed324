//! Reduce-scatter: every rank gets the mean of its own shard of the model.
//!
//! Each tensor is cut into chunks of whole rows, one for each rank, as FSDP2 of PyTorch shards parameters. Chunk r of
//! all tensors of a group, one after the other, is the shard of rank r. A group's values are the shards of all ranks in
//! rank order; a chunk with fewer rows than others is padded to their length. Every rank compresses each chunk for its
//! owner, as a tensor called `name[a..b]` with a residual and random draws of its own, and the owner averages what it
//! receives. The mean is not compressed again. One phase; with messages of `b` bytes in all, a rank sends and receives
//! about `b·(n − 1)/n` bytes.

use std::ops::Range;

use super::scatter::Scatter;
use super::slices::{Slice, chunk_rows, cut_rows, row_elements};
use super::{Collective, Group, Reduction};
use crate::codecs::Codecs;
use crate::{GroupConfig, Result};

/// Averages shards by reduce-scatter; see the [module](self).
pub(crate) struct ReduceScatter {
    scatter: Scatter,
    ranks: usize,
}

impl ReduceScatter {
    pub(crate) fn new(config: &GroupConfig<'_>, codecs: &mut Codecs) -> Self {
        let ranks = config.workers;
        let slices = config.tensors.iter().map(|tensor| cut_rows(tensor, ranks)).collect();
        let scatter = Scatter::new(slices, ranks);
        codecs.cut(scatter.names());
        Self { scatter, ranks }
    }

    /// The start of each tensor's chunk in a shard, and the length of a shard.
    fn chunks(&self, group: &Group) -> (Vec<usize>, usize) {
        let mut end = 0;
        let start = |tensor| {
            let start = end;
            end += chunk_rows(tensor, self.ranks) * row_elements(tensor);
            start
        };
        let starts = group.tensors.iter().map(start).collect();
        (starts, end)
    }
}

impl Collective for ReduceScatter {
    fn values(&self, group: &Group) -> usize {
        self.chunks(group).1 * self.ranks
    }

    /// Out: this rank's shard of `values` holds its mean. Other shards are unspecified.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let (starts, shard) = self.chunks(step.group);
        let place = |at: usize, slice: &Slice| -> Range<usize> {
            let start = slice.owner * shard + starts[at];
            start..start + slice.range.len()
        };
        self.scatter.scatter(step, values, &place)?;
        self.scatter.average(step, |_, at, slice, mean| {
            values[place(at, slice)].copy_from_slice(mean);
            Ok(())
        })
    }
}
