//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages a tensor, in the order of ranks and each as it comes: it holds its own message and one
//! of another rank, and adds up the means in place of its gradients. A rank that does not take part in a round sends nothing. Raw tensors are
//! gathered like the others, as `none`.

use gradwire::{State, Tensor};

use crate::codec::{Carried, Phases, Receiver, Sender, routes};
use crate::exchange::{timed, worked};
use crate::policy::Route;
use crate::{
    Average, ExchangeError, Operation, Phase, Round, Setup, Shares, StepReport, Transport, fused,
};

/// Averages by all-gather; see the [module](self).
pub struct AllGather {
    routes: Vec<Route>,
    sender: Sender,
    receiver: Receiver,
    /// This rank's messages of one step.
    own: Vec<u8>,
    /// Another rank's.
    received: Vec<u8>,
    message: Vec<u8>,
    shares: Shares,
    /// Of each rank, its part in the mean of the round.
    parts: Vec<f32>,
    carried: Carried,
}

impl Average for AllGather {
    fn new(setup: &Setup<'_>, rank: usize) -> Self {
        let phases = Phases::of_pushes(setup.policy);
        Self {
            routes: routes(setup.policy, setup.tensors),
            sender: Sender::new(phases.clone(), setup, rank),
            receiver: Receiver::new(phases, setup.seed),
            own: Vec::new(),
            received: Vec::new(),
            message: Vec::new(),
            shares: setup.shares.clone(),
            parts: Vec::new(),
            carried: Carried::new(setup.tensors.len()),
        }
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let operation = Operation::whole(Phase::Gather, round.step);
        self.shares.of_round(round.step, &mut self.parts);
        let own = transport.rank();
        worked(&mut report.compress, || self.encode(own, round, values))?;
        timed(&mut report.wire, || transport.send_to_others(operation, &self.own))?;
        values.fill(0.0);
        for rank in 0..transport.size() {
            if rank != own {
                timed(&mut report.wire, || transport.recv(rank, operation, &mut self.received))?;
            }
            worked(&mut report.decompress, || self.add(rank, rank == own, round, values))?;
        }
        for (route, range) in self.routes.iter().zip(round.ranges) {
            let mean = &mut values[range.clone()];
            worked(&mut report.decompress, || self.receiver.aggregate(*route, mean));
        }
        Ok(())
    }

    fn remember(&mut self) {
        self.sender.remember();
    }

    fn go_back(&mut self) {
        self.sender.go_back();
    }

    fn keeps_squares(&self) -> bool {
        self.sender.keeps_squares()
    }

    fn observe(&mut self, tensors: &[Tensor], squares: &[Vec<f32>]) -> Result<(), ExchangeError> {
        Ok(self.sender.observe_all(tensors, &self.routes, squares)?)
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
    fn encode(
        &mut self,
        rank: usize,
        round: Round<'_>,
        values: &[f32],
    ) -> Result<(), ExchangeError> {
        self.own.clear();
        self.carried.clear();
        if self.parts[rank] == 0.0 {
            return Ok(());
        }
        for (index, tensor) in round.tensors.iter().enumerate() {
            let gradient = &values[round.ranges[index].clone()];
            let route = self.routes[index];
            self.sender.encode(tensor, route, round.step, gradient, &mut self.message)?;
            self.carried.note(index, 0, &self.sender, &self.message);
            fused::append(&self.message, &mut self.own);
        }
        Ok(())
    }

    /// Adds what one rank sent, weighed by its part in the round, to the means.
    fn add(
        &mut self,
        rank: usize,
        own: bool,
        round: Round<'_>,
        means: &mut [f32],
    ) -> Result<(), ExchangeError> {
        let (fused, weight) = (if own { &self.own } else { &self.received }, self.parts[rank]);
        let mut at = 0;
        if weight != 0.0 {
            for (index, tensor) in round.tensors.iter().enumerate() {
                let operation = Operation::tensor(Phase::Gather, index, tensor.name(), round.step);
                let message = fused::next(rank, fused, &mut at, operation)?;
                let (route, from) = (self.routes[index], (round.step, rank));
                let mean = &mut means[round.ranges[index].clone()];
                self.receiver.decode_add(tensor, route, from, message, weight, mean)?;
            }
        }
        fused::finish(rank, fused, at, Operation::whole(Phase::Gather, round.step))
    }
}
