//! The first phase of scatter-reduce and reduce-scatter: every rank compresses each slice for its
//! owner, and owners average the slices that they receive.

use std::ops::Range;

use super::collective::Reduction;
use super::packed;
use super::received::Received;
use super::slices::{self, GroupSlice, Slice, slices_of};
use crate::codecs::Codecs;
use crate::group::Group;
use crate::{Operation, Phase, Result};

/// Sends slices to their owners and averages this rank's own.
pub(super) struct Scatter {
    /// The slices of each tensor of the model.
    slices: Vec<Vec<Slice>>,
    /// Messages for each owner.
    outbox: Vec<Vec<u8>>,
    /// The messages for this owner.
    inbox: Received,
    message: Vec<u8>,
    /// The means of this rank's slices, one after the other.
    means: Vec<f32>,
}

impl Scatter {
    /// `slices` has the slices of each tensor of the model.
    pub(super) fn new(slices: Vec<Vec<Slice>>, ranks: usize) -> Self {
        Self {
            slices,
            outbox: vec![Vec::new(); ranks],
            inbox: Received::new(ranks),
            message: Vec::new(),
            means: Vec::new(),
        }
    }

    /// Adds the slices of the last tensor of the model.
    pub(super) fn add(&mut self, slices: Vec<Slice>, codecs: &mut Codecs) {
        codecs.cut_last(slices::names_of(&slices));
        self.slices.push(slices);
    }

    /// The slices of a group's tensors, in order.
    pub(super) fn slices_of<'a>(
        &'a self,
        group: &'a Group,
    ) -> impl Iterator<Item = GroupSlice<'a>> + Clone {
        slices_of(&self.slices, group)
    }

    /// Compresses every slice for its owner, and sends and receives the messages, unless the values
    /// are not [finite](Reduction::finite). `place` returns the range of a slice in `values`, given
    /// the place of its tensor in the group.
    pub(super) fn scatter(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        let operation = step.operation_of_group(Phase::Scatter);
        let encoded = step.compress(|step| self.encode(step, values, place));
        step.note(encoded)?;
        self.send(step, operation)
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
        let mut owners = all.clone().map(|one| one.slice.owner);
        let pieces = all.map(|one| one.piece(place(one.at, one.slice)));
        step.encode_pieces(pieces, values, message, |message| {
            let owner = owners.next().expect("each slice has one message");
            packed::append(message, &mut outbox[owner]);
        })
    }

    fn send(&mut self, step: &mut Reduction<'_>, operation: Operation<'_>) -> Result<()> {
        for to in step.transport.endpoint().others() {
            step.send(to, operation, &self.outbox[to])?;
        }
        let rank = step.transport.rank();
        self.inbox.from[rank].clone_from(&self.outbox[rank]);
        for from in (0..step.transport.size()).filter(|&from| from != rank) {
            step.recv(from, operation, &mut self.inbox.from[from])?;
        }
        Ok(())
    }

    /// Averages this rank's slices, and calls `take` with each slice and its mean times a factor.
    pub(super) fn average(
        &mut self,
        step: &mut Reduction<'_>,
        factor: f32,
        mut take: impl FnMut(&mut Reduction<'_>, GroupSlice<'_>, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let Self { slices, inbox, means, .. } = self;
        let (rank, group) = (step.transport.rank(), step.group);
        let own = || slices_of(slices, group).filter(|one| one.slice.owner == rank);
        // The means of the slices follow each other.
        let pieces = || {
            let mut end = 0;
            own().map(move |one| {
                let start = end;
                end += one.slice.range.len();
                one.piece(start..end)
            })
        };
        means.resize(own().map(|one| one.slice.range.len()).sum(), 0.0);
        step.decompress(|step| inbox.average(step, Phase::Scatter, factor, pieces(), means))?;
        own().zip(pieces()).try_for_each(|(one, piece)| take(step, one, &means[piece.range]))
    }
}
