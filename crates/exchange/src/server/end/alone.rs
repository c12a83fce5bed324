//! The server's end where workers go at their own pace; see [`Paced`].

use super::super::paced::Paced;
use super::Server;
use crate::distributed_optimizer::worked;
use crate::{ExchangeError, Header, Operation, Phase};

impl Server {
    /// Updates a tensor by one worker's push, and answers all who may go on.
    pub(super) fn push_alone(
        &mut self,
        worker: usize,
        header: Header,
        at: usize,
        push: &[u8],
    ) -> Result<(), ExchangeError> {
        let refusal = self.refuse(worker, header);
        let Self { paced, slots, receiver, optimizer, mean, report, parts, .. } = self;
        let Some(paced) = paced else { return Err(refusal) };
        let begun = paced.begun[worker].filter(|(step, _)| *step as u32 == header.step);
        let Some((step, rate)) = begun.filter(|_| paced.pushed(at, worker)) else {
            return Err(refusal);
        };
        let slot = &mut slots[at];
        mean.clear();
        mean.resize(slot.tensor.elements(), 0.0);
        worked(&mut report.decompress, || {
            let weight = parts[worker];
            receiver.decode_add(&slot.tensor, slot.route, (step, worker), push, weight, mean)
        })?;
        worked(&mut report.update, || {
            optimizer.update(slot.index, rate, mean, &mut slot.parameters);
        });
        report.updates += 1;
        self.answer(at)
    }

    /// Sends the pulls of a tensor that are due.
    fn answer(&mut self, at: usize) -> Result<(), ExchangeError> {
        let Self { paced, slots, delta, message, report, transport, .. } = self;
        let (Some(paced), slot) = (paced, &slots[at]) else { return Ok(()) };
        while let Some(to) = paced.release(at) {
            let Some((step, _)) = paced.begun[to] else { continue };
            worked(&mut report.compress, || {
                paced.change(at, to, slot, delta);
                paced.senders[to].encode(&slot.tensor, slot.route, step, delta, message)
            })?;
            let pull = Operation::tensor(Phase::Pull, slot.index, slot.tensor.name(), step);
            match transport.send(to, pull, message) {
                Err(ExchangeError::PeerLost { peer, .. }) if peer == to => {}
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Who keeps an answer waiting, and the push that is missing.
    pub(super) fn keeps_waiting(&self) -> Option<(usize, String)> {
        let (_, at, peer) = self.paced.as_ref()?.overdue()?;
        Some((peer, self.push_to(at)))
    }

    /// Refuses that someone has left for whose push an answer waits.
    pub(super) fn expect_nobody_gone(&self) -> Result<(), ExchangeError> {
        match self.paced.as_ref().and_then(|paced| paced.stuck(&self.present)) {
            Some((at, peer)) => Err(ExchangeError::PeerLost { peer, operation: self.push_to(at) }),
            None => Ok(()),
        }
    }

    /// Refuses that someone has left early, where there is no bound and nobody waited.
    pub(super) fn expect_as_many_of_all(&self) -> Result<(), ExchangeError> {
        let step = self.begun.map_or(0, |(step, _)| step);
        match self.paced.as_ref().and_then(Paced::behind) {
            Some(peer) => Err(ExchangeError::PeerLost {
                peer,
                operation: Operation::whole(Phase::Push, step).to_string(),
            }),
            None => Ok(()),
        }
    }

    fn push_to(&self, at: usize) -> String {
        let (slot, step) = (&self.slots[at], self.begun.map_or(0, |(step, _)| step));
        Operation::tensor(Phase::Push, slot.index, slot.tensor.name(), step).to_string()
    }
}
