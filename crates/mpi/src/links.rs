//! The links to the other ranks: outgoing messages, the ranks that have left, and the rank that
//! stopped the run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gradwire_exchange::patience::GRACE;

use crate::call::{Arrival, Fault, Tag, Transfer};
use crate::notice::{NOBODY, Notice};
use crate::pause::Pause;
use crate::watchdog::{Busy, Watch};

/// The number of buffers kept for reuse, and the most bytes of one: messages with states are
/// larger, but rare.
const SPARE: usize = 64;
const SPARE_BYTES: usize = 64 << 20;

/// The links of one process to the others in one session: the life of one transport. Ranks are
/// positions in `members`.
pub(crate) struct Links {
    pub(crate) session: u32,
    /// The ranks in MPI's world of the processes in this session, in order.
    pub(crate) members: Vec<usize>,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    outgoing: VecDeque<Transfer>,
    spare: Vec<Vec<u8>>,
    /// Messages sent to each rank.
    sent: Vec<u64>,
    /// Messages received from each rank.
    received: Vec<u64>,
    /// For each rank that has left, the number of messages it sent to this rank.
    left: Vec<Option<u64>>,
    culprit: Option<usize>,
    /// When this rank learned that the run is stopped.
    stopped: Option<Instant>,
    /// For each rank, including this one, the rank that it last announced it waits for.
    waits: Vec<Option<usize>>,
    /// Whether this rank has left.
    ended: bool,
    pub(crate) watch: Arc<Watch>,
}

impl Links {
    /// The links of the member at position `rank`.
    pub(crate) fn new(members: Vec<usize>, rank: usize, session: u32, watch: Arc<Watch>) -> Self {
        let size = members.len();
        Self {
            session,
            members,
            rank,
            size,
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            sent: vec![0; size],
            received: vec![0; size],
            left: vec![None; size],
            culprit: None,
            stopped: None,
            waits: vec![None; size],
            ended: false,
            watch,
        }
    }

    /// The links of the session after this one, which has ended.
    pub(crate) fn next_session(self) -> Self {
        Self::new(self.members, self.rank, self.session + 1, self.watch)
    }

    /// The position of a process, given by its rank in MPI's world.
    fn position(&self, world: usize) -> Option<usize> {
        self.members.iter().position(|&member| member == world)
    }

    /// Tells the watchdog the section that this rank is in until the guard is dropped.
    pub(crate) fn busy(&self, section: &'static str, deadline: Duration) -> Busy {
        self.watch.busy(section, deadline)
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
        let tag = Tag::Message(self.session);
        self.outgoing.push_back(Transfer::send(self.members[to], tag, bytes)?);
        self.sent[to] += 1;
        Ok(())
    }

    /// The next message that has arrived from one of these ranks; `turn` chooses the rank to look
    /// at first.
    pub(crate) fn probe(
        &mut self,
        from: &[usize],
        turn: usize,
    ) -> Result<Option<Arrival>, (usize, Fault)> {
        for at in 0..from.len() {
            let peer = from[(turn + at) % from.len()];
            let arrival = Arrival::probe(Some(self.members[peer]), Tag::Message(self.session));
            if let Some(mut arrival) = arrival.map_err(|fault| (peer, fault))? {
                self.received[peer] += 1;
                arrival.from = peer;
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    /// Processes the notices that have arrived. The sender of an invalid notice is blamed.
    pub(crate) fn hear(&mut self) -> Result<(), Fault> {
        while let Some(arrival) = Arrival::probe(None, Tag::Notice(self.session))? {
            let from = self.position(arrival.from);
            let notice = Notice::receive(arrival)?;
            let Some(from) = from else { continue };
            match notice {
                // From a rank that came too late to be a member.
                Some(Notice::Here) => {}
                Some(Notice::Left(messages)) => self.left[from] = Some(messages),
                Some(Notice::Waits(peer)) => {
                    self.waits[from] = usize::try_from(peer).ok().filter(|&peer| peer < self.size);
                }
                Some(Notice::Abort(culprit)) if (culprit as usize) < self.size => {
                    self.stop(culprit as usize);
                }
                _ => self.stop(from),
            }
        }
        Ok(())
    }

    /// Records the rank that stopped the run; the first one counts.
    fn stop(&mut self, culprit: usize) {
        self.culprit.get_or_insert(culprit);
        self.stopped.get_or_insert_with(Instant::now);
    }

    /// Stops the run on all ranks because of rank `culprit`, unless it is stopped already.
    pub(crate) fn abort(&mut self, culprit: usize) {
        // An error can be ignored: the run ends in any case.
        let _ = self.hear();
        if self.culprit.is_none() {
            self.stop(culprit);
            self.tell(|_, _| Notice::Abort(culprit as u64));
        }
    }

    /// Announces that this rank leaves.
    pub(crate) fn leave(&mut self) {
        self.ended = true;
        self.tell(|links, to| Notice::Left(links.sent[to]));
    }

    /// Announces that this rank does not take part in the next session: others may have begun it.
    pub(crate) fn leave_next(&mut self) {
        self.tell_in(self.session + 1, |_, _| Notice::Left(0));
    }

    /// Announces the rank that this rank waits for, if it has changed.
    pub(crate) fn wait_for(&mut self, peer: Option<usize>) {
        if self.waits[self.rank] != peer {
            self.waits[self.rank] = peer;
            self.tell(|_, _| Notice::Waits(peer.map_or(NOBODY, |peer| peer as u64)));
        }
    }

    /// The rank to blame when this rank waits for `peer`: by the notices received, the end of the
    /// chain of waiting ranks, or another rank of a cycle.
    pub(crate) fn at_fault(&self, peer: usize) -> usize {
        at_fault(&self.waits, self.rank, peer)
    }

    fn tell(&mut self, notice: impl Fn(&Self, usize) -> Notice) {
        self.tell_in(self.session, notice);
    }

    fn tell_in(&mut self, session: u32, notice: impl Fn(&Self, usize) -> Notice) {
        for to in (0..self.size).filter(|&to| to != self.rank) {
            let bytes = notice(self, to).to_bytes();
            // A rank that cannot be reached needs no notice.
            if let Ok(transfer) = Transfer::send(self.members[to], Tag::Notice(session), bytes) {
                self.outgoing.push_back(transfer);
            }
        }
    }

    /// Whether this rank has left.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The rank that stopped the run, if one did.
    pub(crate) fn culprit(&self) -> Option<usize> {
        self.culprit
    }

    /// Whether a rank has left.
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.left[rank].is_some()
    }

    /// Whether a rank has left and all its messages have been received.
    pub(crate) fn is_silent(&self, rank: usize) -> bool {
        self.left[rank].is_some_and(|sent| self.received[rank] >= sent)
    }

    /// The first other rank that has not left.
    pub(crate) fn still_there(&self) -> Option<usize> {
        (0..self.size).find(|&rank| rank != self.rank && !self.has_left(rank))
    }

    /// Waits until all messages have been sent and `done` is true, but not after `until` or when
    /// `give_up` is true. Returns whether it succeeded.
    pub(crate) fn settle(
        &mut self,
        until: Instant,
        give_up: impl Fn(&Self, Instant) -> bool,
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
            let now = Instant::now();
            if now >= until || give_up(self, now) {
                return false;
            }
            pause.wait();
        }
    }

    /// Whether the run was stopped, and the grace period is over.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.stopped.is_some_and(|stopped| now.saturating_duration_since(stopped) >= GRACE)
    }

    /// How long this rank waits for others at the end.
    pub(crate) fn wait_at_end(&self, deadline: Duration) -> Duration {
        if self.stopped.is_some() { deadline.min(GRACE) } else { deadline }
    }

    /// The receiver of the oldest message that has not been sent yet.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        self.outgoing.front().and_then(|transfer| self.position(transfer.peer()))
    }

    /// Keeps a buffer for further messages, unless there are enough or it is too large.
    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() <= SPARE_BYTES {
            self.spare.push(buffer);
        }
    }

    /// Takes back the buffers of messages that have been sent. A message that failed is dropped:
    /// its receiver is gone.
    fn reap(&mut self) {
        for _ in 0..self.outgoing.len() {
            let Some(mut transfer) = self.outgoing.pop_front() else { return };
            match transfer.is_done() {
                Ok(true) => self.keep(transfer.into_bytes()),
                Err(_) => {}
                Ok(false) => self.outgoing.push_back(transfer),
            }
        }
    }
}

/// The end of the chain of ranks that wait for each other, from `peer` on. It does not lead back to
/// `own`, which is alive: a rank that announced that it waits for this one may have died since.
fn at_fault(waits: &[Option<usize>], own: usize, peer: usize) -> usize {
    let next = |&peer: &usize| waits[peer].filter(|&next| next != own);
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
        for (own, peer) in [(2, 0), (0, 1), (3, 0), (1, 2), (2, 3)] {
            assert_eq!(at_fault(&waits, own, peer), if own == 1 { 0 } else { 1 });
        }
        // In a cycle, each rank blames another.
        assert_eq!([0, 1].map(|own| at_fault(&[Some(1), Some(0)], own, 1 - own)), [1, 0]);
        assert!([1, 2].contains(&at_fault(&[Some(1), Some(2), Some(0)], 0, 1)));
    }
}
