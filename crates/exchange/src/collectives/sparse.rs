//! Sparse all-reduce: sums of sparse messages that meet pairwise and grow on their way.
//!
//! Every rank compresses its gradients with its own residuals, and decodes its own messages, weighed by
//! its part in the mean, to elements with positions. With p the greatest power of two up to n, rank p + i
//! first sends these to rank i, which adds them to its own. Then, for d = 1, 2, 4, … below p, rank i
//! swaps its sum with rank i ⊕ d, and both add the two, that of the lower rank first; at last rank i sends
//! rank p + i the sum of all. That is recursive doubling.
//!
//! Sums are in `f32`. Both of a pair add the same two in the same order, so that after each phase all ranks
//! of a block of 2d hold the same bits, and in the end all do. The order is that of a tree, not of ranks one
//! by one: ((0 + p) + (1 + (p + 1))) + ((2 + …) + …), and does not depend on who is faster.
//!
//! A sparse tensor is sent as the number of its positions as a varint, the positions in Rice's code and
//! the values as `f32`; or all elements as `f32`, from where on that takes no more bytes. Raw tensors
//! are dense from the first phase on. A rank sends and receives log2 p messages, each of up to twice the elements of the
//! one before; the ranks with a partner above p one more each way, and those above p one each way. Where
//! messages overlap little, all-gather would move the same values, but for positions; where they overlap, or n
//! is large, this moves fewer.
//!
//! What a rank's message left out stays in its residual; nothing is lost on the way. Following Renggli,
//! Ashkboos, Aghagolzadeh, Alistarh and Hoefler, SparCML, 2019, section 5.

mod stream;

use gradwire::Tensor;

use self::stream::Part;
use super::{Collective, Reduction};
use crate::report::{timed, worked};
use crate::{ExchangeError, Operation, Phase};

/// Averages by sparse all-reduce; see the [module](self).
#[derive(Default)]
pub(crate) struct SparseAllReduce {
    /// The sum so far, this rank's own at first.
    sum: Vec<Part>,
    /// Another rank's.
    other: Vec<Part>,
    spare: Part,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    message: Vec<u8>,
    mean: Vec<f32>,
}

impl Collective for SparseAllReduce {
    fn reduce(
        &mut self,
        step: &mut Reduction<'_>,
        values: &mut [f32],
    ) -> Result<(), ExchangeError> {
        let mut report = *step.report;
        worked(&mut report.compress, || self.contribute(step, values))?;
        *step.report = report;
        self.double(step)?;
        worked(&mut step.report.decompress, || {
            for (at, tensor) in step.group.tensors.iter().enumerate() {
                self.sum[at].spread(&mut self.mean, tensor.elements());
                step.codecs.aggregate(tensor, &mut self.mean);
                values[step.group.ranges[at].clone()].copy_from_slice(&self.mean);
            }
        });
        Ok(())
    }
}

impl SparseAllReduce {
    /// Leaves what this rank's messages decode to, times its weight in the mean, in `self.sum`.
    fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        values: &[f32],
    ) -> Result<(), ExchangeError> {
        self.sum.resize_with(step.group.tensors.len(), Part::default);
        self.other.resize_with(step.group.tensors.len(), Part::default);
        self.sum.iter_mut().for_each(Part::clear);
        let rank = step.transport.rank();
        let weight = step.weights[rank];
        if weight == 0.0 {
            return Ok(());
        }
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            step.encode(at, values, &mut self.message)?;
            self.mean.clear();
            self.mean.resize(tensor.elements(), 0.0);
            let from = (step.step, rank);
            step.codecs.decode_add(tensor, from, &self.message, weight, &mut self.mean)?;
            let part = &mut self.sum[at];
            match step.codecs.carried(step.group.indices[at]).positions() {
                Some(positions) => {
                    part.positions.extend_from_slice(positions);
                    part.values.extend(positions.iter().map(|&at| self.mean[at as usize]));
                }
                None => {
                    part.dense = true;
                    part.values.extend_from_slice(&self.mean);
                }
            }
            part.settle(tensor.elements());
        }
        Ok(())
    }

    /// Makes `self.sum` the sum of all ranks', by recursive doubling.
    fn double(&mut self, step: &mut Reduction<'_>) -> Result<(), ExchangeError> {
        let (rank, size) = (step.transport.rank(), step.transport.size());
        let phases = size.ilog2();
        let pairs = 1 << phases;
        let fold = Operation::whole(Phase::Scatter, step.step);
        let swap = Operation::whole(Phase::Merge, step.step);
        let result = Operation::whole(Phase::Gather, step.step);
        if rank >= pairs {
            self.send(step, rank - pairs, fold)?;
            self.receive(step, (rank - pairs, phases + 1), result)?;
            std::mem::swap(&mut self.sum, &mut self.other);
            return Ok(());
        }
        if rank + pairs < size {
            self.receive(step, (rank + pairs, 0), fold)?;
            worked(&mut step.report.decompress, || self.add(true, &step.group.tensors));
        }
        for phase in 0..phases {
            let partner = rank ^ (1 << phase);
            self.send(step, partner, swap)?;
            self.receive(step, (partner, phase + 1), swap)?;
            worked(&mut step.report.decompress, || self.add(rank < partner, &step.group.tensors));
        }
        if rank + pairs < size {
            self.send(step, rank + pairs, result)?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        step: &mut Reduction<'_>,
        to: usize,
        operation: Operation<'_>,
    ) -> Result<(), ExchangeError> {
        worked(&mut step.report.compress, || {
            stream::write(&self.sum, &step.group.tensors, &mut self.outgoing);
        });
        timed(&mut step.report.wire, || step.transport.send(to, operation, &self.outgoing))
    }

    /// Leaves what a rank sends in `self.other`. It has waited for others itself in the phases before
    /// this one.
    fn receive(
        &mut self,
        step: &mut Reduction<'_>,
        (from, phase): (usize, u32),
        operation: Operation<'_>,
    ) -> Result<(), ExchangeError> {
        let patience = step.transport.deadline() * (4 + phase) / 4;
        timed(&mut step.report.wire, || {
            step.transport.recv_within(from, operation, patience, &mut self.incoming)
        })?;
        let read = worked(&mut step.report.decompress, || {
            stream::read(&mut self.other, &step.group.tensors, &self.incoming)
        });
        read.map_err(|error| ExchangeError::Protocol {
            peer: from,
            operation: operation.to_string(),
            what: error.to_string(),
        })
    }

    /// Adds the other's sum to this one's, which is the lower rank's or not.
    fn add(&mut self, lower: bool, tensors: &[Tensor]) {
        for ((sum, other), tensor) in self.sum.iter_mut().zip(&self.other).zip(tensors) {
            let (low, high) = if lower { (&*sum, other) } else { (other, &*sum) };
            self.spare.add(low, high, tensor.elements());
            std::mem::swap(sum, &mut self.spare);
        }
    }
}
