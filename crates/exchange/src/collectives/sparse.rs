//! Sparse all-reduce: ranks exchange sums of sparse messages pairwise; the sums grow on the way.
//!
//! Every rank compresses its gradients with its own residuals. It decodes its own messages to
//! elements with positions and multiplies them by its weight in the mean. Then the ranks add up by
//! recursive doubling. Let p be the greatest power of two up to n. First, rank p + i sends its
//! elements to rank i, which adds them to its own. Then, for d = 1, 2, 4, … below p, rank i swaps
//! its sum with rank i ⊕ d, and both add the two sums, the lower rank's first. Last, rank i sends
//! the total to rank p + i.
//!
//! Sums are in `f32`. Both ranks of a pair add the same sums in the same order. So after each phase
//! all ranks of a block of 2d hold the same bits, and in the end all ranks do. The order of
//! addition is a tree, not the order of the ranks: ((0 + p) + (1 + (p + 1))) + ((2 + …) + …). It
//! does not depend on which rank is faster.
//!
//! A sparse tensor is sent as the number of its positions as a varint, the positions in Rice code,
//! and the values as `f32`. If all elements as `f32` take no more bytes, the tensor becomes dense.
//! Raw tensors are dense from the first phase on. A rank sends and receives log2 p messages, each
//! with up to twice the elements of the previous one. Rank i with a partner p + i has one more
//! message each way; rank p + i has one each way. If messages overlap little, all-gather moves the
//! same values without positions; if they overlap, or n is large, this exchange moves fewer.
//!
//! The residual keeps the values that a rank's message leaves out; the addition loses nothing. The
//! method is by Renggli, Ashkboos, Aghagolzadeh, Alistarh and Hoefler, SparCML, 2019, section 5.

mod stream;

use gradwire::Tensor;

use self::stream::PartialSum;
use super::collective::{Collective, Reduction};
use crate::codecs::Sender;
use crate::device::Values;
use crate::patience::patience;
use crate::{ExchangeError, Operation, Phase, Result};

/// Averages by sparse all-reduce; see the [module](self).
#[derive(Default)]
pub(crate) struct SparseAllReduce {
    /// The sum so far; initially this rank's elements.
    sum: Vec<PartialSum>,
    /// The sum of another rank.
    other: Vec<PartialSum>,
    spare: PartialSum,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    message: Vec<u8>,
    mean: Vec<f32>,
}

impl Collective for SparseAllReduce {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()> {
        let values = values.on_host()?;
        step.compress(|step| self.contribute(step, values))?;
        self.double(step)?;
        step.decompress(|step| {
            for (at, piece) in step.group.pieces().enumerate() {
                self.sum[at].spread(&mut self.mean, piece.tensor.elements());
                step.codecs.at(&piece, step.step).aggregate(&mut self.mean)?;
                values[piece.range].copy_from_slice(&self.mean);
            }
            Ok(())
        })
    }
}

impl SparseAllReduce {
    /// Replaces `self.sum` with this rank's decoded messages, times its weight in the mean.
    fn contribute(&mut self, step: &mut Reduction<'_>, values: &[f32]) -> Result<()> {
        self.sum.resize_with(step.group.tensors.len(), PartialSum::default);
        self.other.resize_with(step.group.tensors.len(), PartialSum::default);
        self.sum.iter_mut().for_each(PartialSum::clear);
        let rank = step.transport.rank();
        let weight = step.weights[rank];
        if weight == 0.0 {
            return Ok(());
        }
        let own = Sender { weight, ..Sender::alone(rank) };
        for (at, piece) in step.group.pieces().enumerate() {
            step.encode(&piece, values, &mut self.message)?;
            self.mean.clear();
            self.mean.resize(piece.tensor.elements(), 0.0);
            step.codecs.at(&piece, step.step).add(own, &self.message, &mut self.mean)?;
            let part = &mut self.sum[at];
            match step.codecs.sent_elements(piece.index).positions() {
                Some(positions) => {
                    part.positions.extend_from_slice(positions);
                    part.values.extend(positions.iter().map(|&at| self.mean[at as usize]));
                }
                None => {
                    part.dense = true;
                    part.values.extend_from_slice(&self.mean);
                }
            }
            part.make_dense_if_shorter(piece.tensor.elements());
        }
        Ok(())
    }

    /// Replaces `self.sum` with the sum over all ranks, by recursive doubling.
    fn double(&mut self, step: &mut Reduction<'_>) -> Result<()> {
        let (rank, size) = (step.transport.rank(), step.transport.size());
        let phases = size.ilog2();
        let pairs = 1 << phases;
        let [fold, swap, result] =
            [Phase::Scatter, Phase::Merge, Phase::Gather].map(|phase| step.operation(phase));
        if rank >= pairs {
            self.send(step, rank - pairs, fold)?;
            self.receive(step, rank - pairs, phases + 1, result)?;
            std::mem::swap(&mut self.sum, &mut self.other);
            return Ok(());
        }
        if rank + pairs < size {
            self.receive(step, rank + pairs, 0, fold)?;
            step.decompress(|step| self.add(true, &step.group.tensors));
        }
        for phase in 0..phases {
            let partner = rank ^ (1 << phase);
            self.send(step, partner, swap)?;
            self.receive(step, partner, phase + 1, swap)?;
            step.decompress(|step| self.add(rank < partner, &step.group.tensors));
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
    ) -> Result<()> {
        step.compress(|step| stream::write(&self.sum, &step.group.tensors, &mut self.outgoing));
        step.wire(|transport| transport.send(to, operation, &self.outgoing))
    }

    /// Replaces `self.other` with the sum that a rank sends. The deadline grows with the phase,
    /// because that rank may still wait for other ranks in earlier phases.
    fn receive(
        &mut self,
        step: &mut Reduction<'_>,
        from: usize,
        phase: u32,
        operation: Operation<'_>,
    ) -> Result<()> {
        let patience = patience(step.transport.deadline(), phase);
        let Self { incoming, other, .. } = self;
        step.wire(|transport| transport.recv_within(from, operation, patience, incoming))?;
        step.decompress(|step| stream::read(other, &step.group.tensors, incoming))
            .map_err(|error| ExchangeError::protocol(from, operation, error))
    }

    /// Adds `self.other` to `self.sum`; `lower` says whether this rank is the lower one of the two.
    fn add(&mut self, lower: bool, tensors: &[Tensor]) {
        for ((sum, other), tensor) in self.sum.iter_mut().zip(&self.other).zip(tensors) {
            let (low, high) = if lower { (&*sum, other) } else { (other, &*sum) };
            self.spare.add(low, high, tensor.elements());
            std::mem::swap(sum, &mut self.spare);
        }
    }
}
