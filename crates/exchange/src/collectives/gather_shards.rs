//! Gathering of shards: every rank gets the shards of all ranks, compressed once.
//!
//! The values of a group are the shards of all ranks, as in
//! [reduce-scatter](super::reduce_scatter), but nothing is averaged. Every rank compresses its own
//! chunk of each tensor and sends it to all. It decodes all chunks, including its own, so all ranks
//! have the same bits. This is for parameters, which are sent whole each time: values that a
//! message omits are not kept. With messages of `b` bytes in all, a rank sends `b·(n − 1)/n` bytes
//! and receives as many.

use std::ops::Range;

use gradwire::Tensor;

use super::collective::{Collective, Reduction};
use super::packed;
use super::slices::{self, Shards, Slice, slices_of};
use crate::codecs::{Codecs, Sender};
use crate::device::Values;
use crate::group::{Group, Piece};
use crate::{GroupConfig, Phase, Result};

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
        let shards = Shards { ranks: config.workers() };
        let slices = shards.cut(config.tensors);
        codecs.cut(slices::names(&slices));
        let gathered = vec![Vec::new(); config.workers()];
        Self { shards, slices, gathered, message: Vec::new() }
    }

    fn encode(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        let (rank, group) = (step.transport.rank(), step.group);
        let Self { slices, gathered, message, .. } = self;
        let own = &mut gathered[rank];
        own.clear();
        let pieces = pieces_of(slices, group, rank, place);
        step.encode_pieces(pieces, values, message, |message| packed::append(message, own))
    }

    fn decode(
        &self,
        step: &mut Reduction<'_>,
        values: &mut [f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        let group = step.group;
        for (owner, packed) in self.gathered.iter().enumerate() {
            let pieces = pieces_of(&self.slices, group, owner, place);
            let sender = Sender::alone(owner);
            step.decode_all(Phase::Gather, sender, packed, pieces, values)?;
        }
        Ok(())
    }
}

/// The chunks of a rank.
fn pieces_of<'a>(
    slices: &'a [Vec<Slice>],
    group: &'a Group,
    owner: usize,
    place: &'a dyn Fn(usize, &Slice) -> Range<usize>,
) -> impl Iterator<Item = Piece<'a>> {
    let own = slices_of(slices, group).filter(move |one| one.slice.owner == owner);
    own.map(|one| one.piece(place(one.at, one.slice)))
}

impl Collective for GatherShards {
    fn add(&mut self, tensor: &Tensor, codecs: &mut Codecs) {
        let slices = self.shards.cut_tensor(tensor);
        codecs.cut_last(slices::names_of(&slices));
        self.slices.push(slices);
    }

    fn values(&self, group: &Group) -> usize {
        self.shards.values(&group.tensors)
    }

    fn each_place(&self, group: &Group, see: &mut dyn FnMut(usize, Range<usize>)) {
        self.shards.each_place(&group.tensors, see);
    }

    /// In: this rank's shard of `values`. Out: all shards.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()> {
        let values = values.on_host()?;
        let place = self.shards.places(&step.group.tensors);
        step.compress(|step| self.encode(step, values, &place))?;
        let operation = step.operation_of_group(Phase::Gather);
        step.wire(|transport| transport.all_gather_v(operation, &mut self.gathered))?;
        values.fill(0.0);
        step.decompress(|step| self.decode(step, values, &place))
    }
}
