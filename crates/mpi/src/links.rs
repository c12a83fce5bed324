//! The links to the other ranks: what is on its way out, who has left, and who stopped the run.

use std::collections::VecDeque;
use std::time::Instant;

use crate::call::{Arrival, Fault, Tag, Transfer};
use crate::notice::{NOBODY, Notice};
use crate::pause::Pause;

/// Buffers kept for further messages.
const SPARE: usize = 64;

/// One process's links to the others in one session, which lasts from one transport's making to its end.
pub(crate) struct Links {
    session: u32,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    outgoing: VecDeque<Transfer>,
    spare: Vec<Vec<u8>>,
    /// Messages sent to each rank.
    sent: Vec<u64>,
    /// Messages received from each rank.
    received: Vec<u64>,
    /// Of each rank that has left, how many messages it sent here.
    left: Vec<Option<u64>>,
    culprit: Option<usize>,
    /// Of each rank, for whom it has said that it waits; this one's own among them.
    waits: Vec<Option<usize>>,
    /// Whether this rank has left.
    ended: bool,
}

impl Links {
    pub(crate) fn new(rank: usize, size: usize, session: u32) -> Self {
        Self {
            session,
            rank,
            size,
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            sent: vec![0; size],
            received: vec![0; size],
            left: vec![None; size],
            culprit: None,
            waits: vec![None; size],
            ended: false,
        }
    }

    /// The links of the session after this one, which has ended.
    pub(crate) fn next_session(self) -> Self {
        Self::new(self.rank, self.size, self.session + 1)
    }

    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Starts to send a message.
    pub(crate) fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), Fault> {
        self.reap();
        self.outgoing.push_back(Transfer::send(to, Tag::Message(self.session), bytes)?);
        self.sent[to] += 1;
        Ok(())
    }

    /// The next message of one of these ranks that is here; `turn` says who is asked first.
    pub(crate) fn probe(
        &mut self,
        from: &[usize],
        turn: usize,
    ) -> Result<Option<Arrival>, (usize, Fault)> {
        for at in 0..from.len() {
            let peer = from[(turn + at) % from.len()];
            let arrival = Arrival::probe(Some(peer), Tag::Message(self.session));
            if let Some(arrival) = arrival.map_err(|fault| (peer, fault))? {
                self.received[peer] += 1;
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    /// Takes in the notices that are here. One that makes no sense is its sender's fault.
    pub(crate) fn hear(&mut self) -> Result<(), Fault> {
        while let Some(arrival) = Arrival::probe(None, Tag::Notice(self.session))? {
            let (from, fits) = (arrival.from, Notice::fits(arrival.length));
            let mut transfer = arrival.receive(Vec::new())?;
            // So few bytes come with the message that announces them.
            let mut pause = Pause::default();
            while !transfer.is_done()? {
                pause.wait();
            }
            let notice = Notice::from_bytes(&transfer.into_bytes()).filter(|_| fits);
            match notice {
                Some(Notice::Left(messages)) => self.left[from] = Some(messages),
                Some(Notice::Waits(peer)) => {
                    self.waits[from] = usize::try_from(peer).ok().filter(|&peer| peer < self.size);
                }
                Some(Notice::Abort(culprit)) if (culprit as usize) < self.size => {
                    self.culprit.get_or_insert(culprit as usize);
                }
                _ => {
                    self.culprit.get_or_insert(from);
                }
            }
        }
        Ok(())
    }

    /// Tells the others to stop because of a rank, unless someone has said so before.
    pub(crate) fn abort(&mut self, culprit: usize) {
        // What cannot be heard any more does not matter now.
        let _ = self.hear();
        if self.culprit.is_none() {
            self.culprit = Some(culprit);
            self.tell(|_, _| Notice::Abort(culprit as u64));
        }
    }

    /// Tells the others that this rank leaves.
    pub(crate) fn leave(&mut self) {
        self.ended = true;
        self.tell(|links, to| Notice::Left(links.sent[to]));
    }

    /// Tells the others for whom this rank waits, if it is someone else than before.
    pub(crate) fn wait_for(&mut self, peer: Option<usize>) {
        if self.waits[self.rank] != peer {
            self.waits[self.rank] = peer;
            self.tell(|_, _| Notice::Waits(peer.map_or(NOBODY, |peer| peer as u64)));
        }
    }

    /// Whom all wait for in the end, by what has been heard, when this rank waits for `peer`: the first of
    /// the chain that waits for nobody, or someone in a circle.
    pub(crate) fn at_fault(&self, peer: usize) -> usize {
        at_fault(&self.waits, peer)
    }

    fn tell(&mut self, notice: impl Fn(&Self, usize) -> Notice) {
        for to in (0..self.size).filter(|&to| to != self.rank) {
            let bytes = notice(self, to).to_bytes();
            // A rank that cannot be reached need not be told.
            if let Ok(transfer) = Transfer::send(to, Tag::Notice(self.session), bytes) {
                self.outgoing.push_back(transfer);
            }
        }
    }

    /// Whether this rank has left.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Who stopped the run, if someone did.
    pub(crate) fn culprit(&self) -> Option<usize> {
        self.culprit
    }

    /// Whether a rank has left.
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.left[rank].is_some()
    }

    /// Whether a rank has left and all that it sent has been received.
    pub(crate) fn is_silent(&self, rank: usize) -> bool {
        self.left[rank].is_some_and(|sent| self.received[rank] >= sent)
    }

    /// The first of the others that has not left.
    pub(crate) fn still_there(&self) -> Option<usize> {
        (0..self.size).find(|&rank| rank != self.rank && !self.has_left(rank))
    }

    /// Waits until all that was sent is out and `done` says so, at most until a time that `until` gives,
    /// which may change with what is heard. Whether it came to that.
    pub(crate) fn settle(
        &mut self,
        until: impl Fn(&Self) -> Instant,
        done: impl Fn(&Self) -> bool,
    ) -> bool {
        let mut pause = Pause::default();
        loop {
            self.reap();
            if self.hear().is_err() {
                return false;
            }
            if self.outgoing.is_empty() && done(self) {
                return true;
            }
            if Instant::now() >= until(self) {
                return false;
            }
            pause.wait();
        }
    }

    /// The receiver of something that is not out yet.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        self.outgoing.front().map(Transfer::peer)
    }

    /// Takes back the buffers of what is out. What failed is as good as out: its receiver is gone.
    fn reap(&mut self) {
        for _ in 0..self.outgoing.len() {
            let Some(mut transfer) = self.outgoing.pop_front() else { return };
            match transfer.is_done() {
                Ok(true) if self.spare.len() < SPARE => self.spare.push(transfer.into_bytes()),
                Ok(true) | Err(_) => {}
                Ok(false) => self.outgoing.push_back(transfer),
            }
        }
    }
}

fn at_fault(waits: &[Option<usize>], peer: usize) -> usize {
    let next = |&peer: &usize| waits[peer];
    let chain = std::iter::successors(Some(peer), next).take(waits.len());
    chain.last().unwrap_or(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_follows_the_chain_of_those_who_wait() {
        // 0 waits for 1, 2 and 3 for 0; 1 says nothing.
        let waits = [Some(1), None, Some(0), Some(0)];
        for peer in [0, 1, 2, 3] {
            assert_eq!(at_fault(&waits, peer), 1);
        }
        // A circle ends somewhere in it.
        assert!([0, 1].contains(&at_fault(&[Some(1), Some(0)], 0)));
    }
}
