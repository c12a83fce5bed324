//! What every strategy without servers has of its own: a rank's compressors and residuals, and what they carried.

use gradwire::{State, Tensor};

use crate::codec::{Carried, Phases, Receiver, Sender, routes};
use crate::policy::Route;
use crate::rows::Rows;
use crate::{ExchangeError, GroupConfig, Operation, Participation, Phase, Round, fused};

/// A rank's compressors, by [`Policy`](crate::Policy), with what they leave out.
pub struct Ends {
    /// Which compressor each tensor travels by.
    pub(crate) routes: Vec<Route>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) carried: Carried,
    pub(crate) shares: Participation,
    /// Of each rank, its part in the mean of the round.
    pub(crate) parts: Vec<f32>,
    /// Of each tensor, what ranks' messages decode to, where its compressor combines them.
    rows: Vec<Rows>,
    /// The message in hand.
    pub(crate) message: Vec<u8>,
}

impl Ends {
    pub(crate) fn new(setup: &GroupConfig<'_>, rank: usize) -> Self {
        let phases = Phases::of_pushes(setup.policy);
        Self {
            routes: routes(setup.policy, setup.tensors),
            sender: Sender::new(phases.clone(), setup, rank),
            receiver: Receiver::new(phases, setup.seed),
            carried: Carried::new(setup.tensors.len()),
            shares: setup.shares.clone(),
            parts: Vec::new(),
            rows: setup.tensors.iter().map(|_| Rows::default()).collect(),
            message: Vec::new(),
        }
    }

    /// Begins a round: nothing has been carried yet.
    pub(crate) fn begin(&mut self, step: u64) {
        self.shares.of_round(step, &mut self.parts);
        self.carried.clear();
        self.rows.iter_mut().for_each(Rows::clear);
    }

    /// Replaces `fused` by the messages for all values.
    pub(crate) fn encode(
        &mut self,
        round: Round<'_>,
        values: &[f32],
        fused: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        // The larger buffer is where a large message is made, and where it stays.
        if fused.capacity() > self.message.capacity() {
            std::mem::swap(fused, &mut self.message);
        }
        fused.clear();
        for (index, tensor) in round.tensors.iter().enumerate() {
            let (route, values) = (self.routes[index], &values[round.ranges[index].clone()]);
            self.sender.encode(tensor, route, round.step, values, &mut self.message)?;
            self.carried.note(index, 0, &self.sender, &self.message);
            fused::take(&mut self.message, fused);
        }
        Ok(())
    }

    /// Adds `weight` times what a rank's messages decode to to the means, or keeps it for compressors that combine; a
    /// rank without weight sent nothing.
    pub(crate) fn add(
        &mut self,
        (rank, weight): (usize, f32),
        fused: &[u8],
        round: Round<'_>,
        means: &mut [f32],
    ) -> Result<(), ExchangeError> {
        let mut at = 0;
        if weight != 0.0 {
            for (index, tensor) in round.tensors.iter().enumerate() {
                let operation = Operation::tensor(Phase::Gather, index, tensor.name(), round.step);
                let message = fused::next(rank, fused, &mut at, operation)?;
                let (tensor, from) = ((tensor, self.routes[index]), (round.step, rank));
                let into = (&mut self.rows[index], &mut means[round.ranges[index].clone()]);
                self.receiver.gather(tensor, from, message, weight, into)?;
            }
        }
        fused::finish(rank, fused, at, Operation::whole(Phase::Gather, round.step))
    }

    /// Makes what a step goes by of all messages, in place of their means.
    pub(crate) fn aggregate(&mut self, round: Round<'_>, means: &mut [f32]) {
        let tensors = self.routes.iter().zip(&mut self.rows);
        for ((route, rows), range) in tensors.zip(round.ranges) {
            self.receiver.aggregate(*route, rows, &mut means[range.clone()]);
        }
    }

    pub(crate) fn observe(
        &mut self,
        tensors: &[Tensor],
        squares: &[Vec<f32>],
    ) -> Result<(), ExchangeError> {
        Ok(self.sender.observe_all(tensors, &self.routes, squares)?)
    }

    pub(crate) fn save(&self, state: &mut State) {
        self.sender.save("push/", state);
    }

    pub(crate) fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        Ok(self.sender.restore("push/", state)?)
    }
}
