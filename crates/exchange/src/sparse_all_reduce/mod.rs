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
//! Of every tensor there travel, sparse, the number of positions as a varint, the positions in Rice's code and
//! the values as `f32`; or all elements as `f32`, from where on that takes no more bytes. Raw tensors
//! are dense from the start. A rank sends and receives log2 p messages, each of up to twice the elements of the
//! one before; the ranks with a partner above p one more each way, and those above p one each way. Where
//! messages overlap little, all-gather would move the same values, but for positions; where they overlap, or n
//! is large, this moves fewer.
//!
//! What a rank's message left out stays in its residual; nothing is lost on the way. Following Renggli,
//! Ashkboos, Aghagolzadeh, Alistarh and Hoefler, SparCML, 2019, section 5.

mod stream;

use gradwire::Tensor;

use self::stream::Part;
use crate::distributed_optimizer::{timed, worked};
use crate::rows::Rows;
use crate::{
    Average, Ends, ExchangeError, GroupConfig, Operation, Phase, Round, StepReport, Transport,
};

/// Averages by sparse all-reduce; see the [module](self).
pub struct SparseAllReduce {
    ends: Ends,
    /// The sum so far, this rank's own at first.
    sum: Vec<Part>,
    /// Another rank's.
    other: Vec<Part>,
    spare: Part,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    mean: Vec<f32>,
}

impl Average for SparseAllReduce {
    fn new(setup: &GroupConfig<'_>, rank: usize) -> Self {
        Self {
            ends: Ends::new(setup, rank),
            sum: vec![Part::default(); setup.tensors.len()],
            other: vec![Part::default(); setup.tensors.len()],
            spare: Part::default(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            mean: Vec::new(),
        }
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        self.ends.begin(round.step);
        worked(&mut report.compress, || self.contribute(transport.rank(), round, values))?;
        self.meet(transport, round, report)?;
        for (index, tensor) in round.tensors.iter().enumerate() {
            worked(&mut report.decompress, || {
                self.sum[index].spread(&mut self.mean, tensor.elements());
                let (receiver, route) = (&mut self.ends.receiver, self.ends.routes[index]);
                receiver.aggregate(route, &mut Rows::default(), &mut self.mean);
                values[round.ranges[index].clone()].copy_from_slice(&self.mean);
            });
        }
        Ok(())
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ends_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}

impl SparseAllReduce {
    /// Leaves what this rank's messages decode to, times its part in the mean, in `self.sum`.
    fn contribute(
        &mut self,
        rank: usize,
        round: Round<'_>,
        values: &[f32],
    ) -> Result<(), ExchangeError> {
        self.sum.iter_mut().for_each(Part::clear);
        let weight = self.ends.parts[rank];
        if weight == 0.0 {
            return Ok(());
        }
        for (index, tensor) in round.tensors.iter().enumerate() {
            let (route, gradient) = (self.ends.routes[index], &values[round.ranges[index].clone()]);
            self.ends.sender.encode(tensor, route, round.step, gradient, &mut self.ends.message)?;
            self.ends.carried.note(index, 0, &self.ends.sender, &self.ends.message);
            let (decoded, from) = (&mut self.mean, (round.step, rank));
            decoded.clear();
            decoded.resize(tensor.elements(), 0.0);
            self.ends.receiver.decode_add(
                tensor,
                route,
                from,
                &self.ends.message,
                weight,
                decoded,
            )?;
            let part = &mut self.sum[index];
            match self.ends.sender.positions() {
                Some(positions) => {
                    part.positions.extend_from_slice(positions);
                    part.values.extend(positions.iter().map(|&at| decoded[at as usize]));
                }
                None => {
                    part.dense = true;
                    part.values.extend_from_slice(decoded);
                }
            }
            part.settle(tensor.elements());
        }
        Ok(())
    }

    /// Makes `self.sum` the sum of all ranks'.
    fn meet(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let (rank, size) = (transport.rank(), transport.size());
        let phases = size.ilog2();
        let pairs = 1 << phases;
        let fold = Operation::whole(Phase::Scatter, round.step);
        let swap = Operation::whole(Phase::Merge, round.step);
        let result = Operation::whole(Phase::Gather, round.step);
        if rank >= pairs {
            self.send(transport, rank - pairs, fold, round, report)?;
            self.receive(transport, (rank - pairs, phases + 1), result, round, report)?;
            std::mem::swap(&mut self.sum, &mut self.other);
            return Ok(());
        }
        if rank + pairs < size {
            self.receive(transport, (rank + pairs, 0), fold, round, report)?;
            worked(&mut report.decompress, || self.add(true, round.tensors));
        }
        for phase in 0..phases {
            let partner = rank ^ (1 << phase);
            self.send(transport, partner, swap, round, report)?;
            self.receive(transport, (partner, phase + 1), swap, round, report)?;
            worked(&mut report.decompress, || self.add(rank < partner, round.tensors));
        }
        if rank + pairs < size {
            self.send(transport, rank + pairs, result, round, report)?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        transport: &mut dyn Transport,
        to: usize,
        operation: Operation<'_>,
        round: Round<'_>,
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        worked(&mut report.compress, || {
            stream::write(&self.sum, round.tensors, &mut self.outgoing);
        });
        timed(&mut report.wire, || transport.send(to, operation, &self.outgoing))
    }

    /// Leaves what a rank sends in `self.other`. It has waited for others itself in the phases before
    /// this one.
    fn receive(
        &mut self,
        transport: &mut dyn Transport,
        (from, phase): (usize, u32),
        operation: Operation<'_>,
        round: Round<'_>,
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let patience = transport.deadline() * (4 + phase) / 4;
        timed(&mut report.wire, || {
            transport.recv_within(from, operation, patience, &mut self.incoming)
        })?;
        let read = worked(&mut report.decompress, || {
            stream::read(&mut self.other, round.tensors, &self.incoming)
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
