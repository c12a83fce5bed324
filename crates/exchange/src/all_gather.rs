//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages a tensor. A rank that does not take part in a round sends nothing. Raw tensors are gathered like the others, as `none`.

use gradwire::{State, Tensor};

use crate::codec::{Carried, Phases, Receiver, Sender, raw_tensors};
use crate::exchange::{timed, worked};
use crate::{
    Average, ExchangeError, Operation, Phase, Round, Setup, Shares, StepReport, Transport, fused,
};

/// Averages by all-gather; see the [module](self).
pub struct AllGather {
    raw: Vec<bool>,
    sender: Sender,
    receiver: Receiver,
    /// Of each rank, one step's messages.
    gathered: Vec<Vec<u8>>,
    cursors: Vec<usize>,
    message: Vec<u8>,
    mean: Vec<f32>,
    shares: Shares,
    /// Of each rank, its part in the mean of the round.
    parts: Vec<f32>,
    carried: Carried,
}

impl Average for AllGather {
    fn new(setup: &Setup<'_>, rank: usize) -> Self {
        let phases = Phases::of_pushes(setup.policy);
        Self {
            raw: raw_tensors(setup.policy, setup.tensors),
            sender: Sender::new(phases.clone(), setup, rank),
            receiver: Receiver::new(phases, setup.seed),
            gathered: vec![Vec::new(); setup.workers],
            cursors: vec![0; setup.workers],
            message: Vec::new(),
            mean: Vec::new(),
            shares: setup.shares.clone(),
            parts: Vec::new(),
            carried: Carried::new(setup.tensors.len()),
        }
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        report: &mut StepReport,
        mean: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExchangeError> {
        let operation = Operation::whole(Phase::Gather, round.step);
        self.shares.of_round(round.step, &mut self.parts);
        worked(&mut report.compress, || self.encode(transport.rank(), round))?;
        timed(&mut report.wire, || transport.all_gather_v(operation, &mut self.gathered))?;
        self.cursors.fill(0);
        for index in 0..round.tensors.len() {
            worked(&mut report.decompress, || self.decode(round, index))?;
            mean(index, &self.mean);
        }
        for (rank, (fused, &at)) in self.gathered.iter().zip(&self.cursors).enumerate() {
            fused::finish(rank, fused, at, operation)?;
        }
        Ok(())
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.carried.of(index)
    }

    fn message_bytes(&self, index: usize) -> usize {
        self.carried.bytes(index)
    }

    fn residual(&self, tensor: &Tensor, _: usize, show: &mut dyn FnMut(&[f32])) {
        self.sender.residual(tensor).into_iter().for_each(show);
    }

    fn save(&self, state: &mut State) {
        self.sender.save("push/", state);
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        Ok(self.sender.restore("push/", state)?)
    }
}

impl AllGather {
    fn encode(&mut self, rank: usize, round: Round<'_>) -> Result<(), ExchangeError> {
        let own = &mut self.gathered[rank];
        own.clear();
        self.carried.clear();
        if self.parts[rank] == 0.0 {
            return Ok(());
        }
        for (index, tensor) in round.tensors.iter().enumerate() {
            let gradient = &round.gradients[index];
            let raw = self.raw[index];
            self.sender.encode(tensor, raw, round.step, gradient, &mut self.message)?;
            self.carried.note(index, 0, &self.sender, &self.message);
            fused::append(&self.message, own);
        }
        Ok(())
    }

    /// Leaves the mean of one tensor's messages in `self.mean`.
    fn decode(&mut self, round: Round<'_>, index: usize) -> Result<(), ExchangeError> {
        let tensor = &round.tensors[index];
        let operation = Operation::tensor(Phase::Gather, index, tensor.name(), round.step);
        self.mean.clear();
        self.mean.resize(tensor.elements(), 0.0);
        for (rank, (fused, &weight)) in self.gathered.iter().zip(&self.parts).enumerate() {
            if weight == 0.0 {
                continue;
            }
            let message = fused::next(rank, fused, &mut self.cursors[rank], operation)?;
            let from = (round.step, rank);
            let raw = self.raw[index];
            self.receiver.decode_add(tensor, raw, from, message, weight, &mut self.mean)?;
        }
        Ok(())
    }
}
