//! The asynchronous mode of a server; see [`Staleness`].

use super::{Server, send_unless_left};
use crate::codecs::Sender;
use crate::report::worked;
use crate::server::staleness::{Pull, Staleness};
use crate::{ExchangeError, Header, Operation, Phase, Result};

impl Server {
    /// Updates a tensor by one worker's push, and answers all workers that may continue.
    pub(super) fn apply_push(
        &mut self,
        worker: usize,
        header: Header,
        at: usize,
        push: &[u8],
    ) -> Result<()> {
        let refusal = self.refuse(worker, header);
        let Self { staleness, slots, pushes, optimizer, mean, report, weights, .. } = self;
        let Some(staleness) = staleness else { return Err(refusal) };
        let begun = staleness.begun[worker].filter(|(step, _)| *step as u32 == header.step);
        let Some((step, rate)) = begun.filter(|_| staleness.pushed(at, worker)) else {
            return Err(refusal);
        };
        let slot = &mut slots[at];
        mean.clear();
        mean.resize(slot.tensor.elements(), 0.0);
        worked(&mut report.decompress, || {
            let sender = Sender { weight: weights[worker], ..Sender::alone(worker) };
            pushes.begin(slot.index, step);
            pushes.at(&slot.piece(), step).add(sender, push, mean)
        })?;
        worked(&mut report.update, || {
            optimizer.update(slot.index, rate, mean, &mut slot.parameters);
        });
        report.updates += 1;
        self.answer(at)
    }

    /// Sends the pulls of a tensor that are due.
    fn answer(&mut self, at: usize) -> Result<()> {
        let rank = self.transport.rank();
        let Self { staleness, slots, delta, message, report, transport, .. } = self;
        let (Some(staleness), slot) = (staleness, &slots[at]) else { return Ok(()) };
        while let Some(to) = staleness.release(at) {
            let Some((step, _)) = staleness.begun[to] else { continue };
            worked(&mut report.compress, || {
                staleness.pull(Pull { at, step, server: rank, worker: to }, slot, delta, message)
            })?;
            send_unless_left(&mut **transport, to, slot.operation(Phase::Pull, step), message)?;
        }
        Ok(())
    }

    /// The worker whose push a held answer waits for, and the operation of this push.
    pub(super) fn keeps_waiting(&self) -> Option<(usize, String)> {
        let (_, at, peer) = self.staleness.as_ref()?.overdue()?;
        Some((peer, self.push_to(at)))
    }

    /// Fails if an answer waits for the push of a worker that has left.
    pub(super) fn expect_nobody_gone(&self) -> Result<()> {
        match self.staleness.as_ref().and_then(|staleness| staleness.stuck(&self.present)) {
            Some((at, peer)) => Err(ExchangeError::lost(peer, self.push_to(at))),
            None => Ok(()),
        }
    }

    /// Fails if a worker has left early, but no other worker waited for it because there is no
    /// bound.
    pub(super) fn expect_as_many_of_all(&self) -> Result<()> {
        match self.staleness.as_ref().and_then(Staleness::behind) {
            Some(peer) => {
                Err(ExchangeError::lost(peer, Operation::whole(Phase::Push, self.step())))
            }
            None => Ok(()),
        }
    }

    fn push_to(&self, at: usize) -> String {
        self.slots[at].operation(Phase::Push, self.step()).to_string()
    }
}
