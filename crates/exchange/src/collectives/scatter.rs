//! The first phase of scatter-reduce and reduce-scatter: every rank compresses each slice for its owner, and owners
//! average what they receive.

use std::ops::Range;

use super::slices::Slice;
use super::{Group, Reduction, packed};
use crate::codecs::Sender;
use crate::{ExchangeError, Operation, Phase, Result, Transport};

/// Sends slices to their owners and averages this rank's own.
pub(super) struct Scatter {
    /// The slices of each tensor of the model.
    slices: Vec<Vec<Slice>>,
    /// Messages for each owner.
    outbox: Vec<Vec<u8>>,
    /// The messages of each rank for this owner.
    inbox: Vec<Vec<u8>>,
    message: Vec<u8>,
    /// The means of this rank's slices, one after the other.
    means: Vec<f32>,
}

impl Scatter {
    /// `slices` are those of each tensor of the model.
    pub(super) fn new(slices: Vec<Vec<Slice>>, ranks: usize) -> Self {
        Self {
            slices,
            outbox: vec![Vec::new(); ranks],
            inbox: vec![Vec::new(); ranks],
            message: Vec::new(),
            means: Vec::new(),
        }
    }

    /// The slices of a group's tensors, as [`slices_of`] has them.
    pub(super) fn slices_of<'a>(
        &'a self,
        group: &'a Group,
    ) -> impl Iterator<Item = (usize, usize, &'a Slice)> + Clone {
        slices_of(&self.slices, group)
    }

    /// Compresses every slice for its owner, and sends and receives the messages. `place` is the range in `values` of
    /// a slice of the tensor at some place of the group.
    pub(super) fn scatter(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        let operation = step.operation_of_group(Phase::Scatter);
        step.compress(|step| self.encode(step, values, place))?;
        step.wire(|transport| self.send(transport, operation))
    }

    fn encode(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        self.outbox.iter_mut().for_each(Vec::clear);
        if step.weights[step.transport.rank()] == 0.0 {
            return Ok(());
        }
        let Self { slices, outbox, message, .. } = self;
        let all = slices_of(slices, step.group);
        let mut owners = all.clone().map(|(_, _, slice)| slice.owner);
        let pieces = all.map(|(at, index, slice)| slice.piece(index, place(at, slice)));
        step.encode_pieces(pieces, values, message, |message| {
            let owner = owners.next().expect("each slice has one message");
            packed::append(message, &mut outbox[owner]);
        })
    }

    fn send(&mut self, transport: &mut dyn Transport, operation: Operation<'_>) -> Result<()> {
        for to in transport.endpoint().others() {
            transport.send(to, operation, &self.outbox[to])?;
        }
        let rank = transport.rank();
        self.inbox[rank].clone_from(&self.outbox[rank]);
        for from in (0..transport.size()).filter(|&from| from != rank) {
            transport.recv(from, operation, &mut self.inbox[from])?;
        }
        Ok(())
    }

    /// Averages this rank's slices, and calls `take` with the place of the tensor in the group, the slice, and its mean.
    pub(super) fn average(
        &mut self,
        step: &mut Reduction<'_>,
        mut take: impl FnMut(&mut Reduction<'_>, usize, &Slice, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let Self { slices, inbox, means, .. } = self;
        let (rank, group) = (step.transport.rank(), step.group);
        let own = || slices_of(slices, group).filter(|(_, _, slice)| slice.owner == rank);
        means.clear();
        means.resize(own().map(|(_, _, slice)| slice.range.len()).sum(), 0.0);
        step.decompress(|step| {
            for (from, (packed, &weight)) in inbox.iter().zip(step.weights).enumerate() {
                let sender = Sender::one_of_all(from, weight);
                let mut end = 0;
                let pieces = own().map(|(_, index, slice)| {
                    let start = end;
                    end += slice.range.len();
                    slice.piece(index, start..end)
                });
                step.decode_all(Phase::Scatter, sender, packed, pieces, means)?;
            }
            let mut rest = &mut means[..];
            own().try_for_each(|(_, _, slice)| {
                let mean = rest.split_off_mut(..slice.range.len()).expect("each slice has a mean");
                step.codecs.aggregate(&slice.tensor, step.step, mean)?;
                Ok::<(), ExchangeError>(())
            })
        })?;
        let mut rest = &means[..];
        own().try_for_each(|(at, _, slice)| {
            let mean = rest.split_off(..slice.range.len()).expect("each slice has a mean");
            take(step, at, slice, mean)
        })
    }
}

/// The slices of a group's tensors, in order: the place of the tensor in the group, that in the model, and the slice.
pub(super) fn slices_of<'a>(
    slices: &'a [Vec<Slice>],
    group: &'a Group,
) -> impl Iterator<Item = (usize, usize, &'a Slice)> + Clone {
    let tensors = group.indices.iter().enumerate();
    tensors.flat_map(|(at, &index)| slices[index].iter().map(move |slice| (at, index, slice)))
}
