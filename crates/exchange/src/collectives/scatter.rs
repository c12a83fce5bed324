//! The first phase of scatter-reduce and reduce-scatter: every rank compresses each slice for its owner, and owners
//! average what they receive.

use std::ops::Range;

use gradwire::{Floats, Input};

use super::slices::Slice;
use super::{Reduction, packed};
use crate::{ExchangeError, Operation, Phase, Result, Transport};

/// Sends slices to their owners and averages this rank's own.
pub(super) struct Scatter {
    /// The slices of each tensor of the model.
    slices: Vec<Vec<Slice>>,
    /// Messages for each owner.
    outbox: Vec<Vec<u8>>,
    /// The messages of each rank for this owner.
    inbox: Vec<Vec<u8>>,
    /// For each rank, the number of bytes of its messages that have been read.
    cursors: Vec<usize>,
    message: Vec<u8>,
    mean: Vec<f32>,
}

impl Scatter {
    /// `slices` are those of each tensor of the model.
    pub(super) fn new(slices: Vec<Vec<Slice>>, ranks: usize) -> Self {
        Self {
            slices,
            outbox: vec![Vec::new(); ranks],
            inbox: vec![Vec::new(); ranks],
            cursors: vec![0; ranks],
            message: Vec::new(),
            mean: Vec::new(),
        }
    }

    /// The slices of a tensor of the model.
    pub(super) fn slices(&self, index: usize) -> &[Slice] {
        &self.slices[index]
    }

    /// Compresses every slice for its owner, and sends and receives the messages. `place` is the range in `values` of
    /// a slice of the tensor at some place of the group.
    pub(super) fn scatter(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
        place: &dyn Fn(usize, &Slice) -> Range<usize>,
    ) -> Result<()> {
        let operation = step.operation(Phase::Scatter);
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
        for (at, &index) in step.group.indices.iter().enumerate() {
            for slice in &self.slices[index] {
                let input = Input {
                    gradient: Floats::F32(&values[place(at, slice)]),
                    squares: step.squares.map(|all| &all[index][slice.range.clone()]),
                };
                let start = (index, slice.range.start);
                step.codecs.encode(start, &slice.tensor, step.step, input, &mut self.message)?;
                packed::append(&self.message, &mut self.outbox[slice.owner]);
            }
        }
        Ok(())
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
        let Self { slices, inbox, cursors, mean, .. } = self;
        let rank = step.transport.rank();
        cursors.fill(0);
        for (at, &index) in step.group.indices.iter().enumerate() {
            for slice in slices[index].iter().filter(|slice| slice.owner == rank) {
                let tensor = &slice.tensor;
                let operation = Operation::tensor(Phase::Scatter, index, tensor.name(), step.step);
                mean.clear();
                mean.resize(tensor.elements(), 0.0);
                step.decompress(|step| {
                    for (from, (packed, &weight)) in inbox.iter().zip(step.weights).enumerate() {
                        if weight == 0.0 {
                            continue;
                        }
                        let message = packed::next(from, packed, &mut cursors[from], operation)?;
                        let source = (step.step, from);
                        step.codecs.add_message(tensor, source, message, weight, mean)?;
                    }
                    step.codecs.aggregate(tensor, step.step, mean)?;
                    Ok::<(), ExchangeError>(())
                })?;
                take(step, at, slice, mean)?;
            }
        }
        let operation = step.operation(Phase::Scatter);
        for (from, (packed, &at)) in inbox.iter().zip(&*cursors).enumerate() {
            packed::finish(from, packed, at, operation)?;
        }
        Ok(())
    }
}
