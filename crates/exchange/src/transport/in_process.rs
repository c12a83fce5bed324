//! Ranks as threads of one process.
//!
//! Every rank has a mailbox. Buffers circulate: a send copies its payload into a buffer of the
//! group's pool, a receive hands that buffer over and returns the receiver's old one, so that a
//! steady state allocates no buffers. What goes to all ranks is copied once and shared until each has
//! read it: `n` ranks that say something to one another hold `n` payloads, not `n²`.
//!
//! With a [`Link`] the transport is throttled for real. Each rank has an egress and an ingress, each
//! of the link's bandwidth, and a letter arrives when it has passed both, one latency apart. The
//! sender does not wait, as with a network card that has its own queue; the receiver sleeps until
//! the letter's last bit is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::inbox::{Letter, Mailbox, Pacer};
use super::{HEADER_BYTES, Header, Operation, Transport};
use crate::{ExchangeError, Link, Traffic};

/// No rank has aborted the run.
const NOBODY: usize = usize::MAX;

/// How in-process ranks are connected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// How long a rank waits for another. Pauses that one rank makes and the others wait out, such
    /// as an evaluation, must fit in.
    pub deadline: Duration,
    /// Throttles every rank to this link; `None` leaves memory speed.
    pub link: Option<Link>,
}

/// A minute's deadline, and memory speed.
impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), link: None }
    }
}

/// Makes the transports of `ranks` connected ranks, in rank order; each may move to its own thread.
pub fn connect(ranks: usize, options: Options) -> Vec<InProcess> {
    let group = Arc::new(Group {
        mailboxes: (0..ranks).map(|_| Mailbox::default()).collect(),
        left: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
        culprit: AtomicUsize::new(NOBODY),
        pool: Mutex::default(),
    });
    (0..ranks)
        .map(|rank| InProcess {
            rank,
            options,
            egress: Pacer::default(),
            traffic: Traffic::default(),
            group: Arc::clone(&group),
        })
        .collect()
}

/// One rank's end.
pub struct InProcess {
    rank: usize,
    options: Options,
    egress: Pacer,
    traffic: Traffic,
    group: Arc<Group>,
}

/// What the ranks share.
struct Group {
    mailboxes: Vec<Mailbox>,
    left: Vec<AtomicBool>,
    culprit: AtomicUsize,
    /// Buffers in nobody's use.
    pool: Mutex<Vec<Arc<Vec<u8>>>>,
}

impl Group {
    fn pool(&self) -> MutexGuard<'_, Vec<Arc<Vec<u8>>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_buffer(&self) -> Arc<Vec<u8>> {
        self.pool().pop().unwrap_or_default()
    }

    /// Lets go of a buffer. Whoever does so last returns it to the pool: the lock orders them.
    fn release(&self, mut buffer: Arc<Vec<u8>>) {
        let mut pool = self.pool();
        if Arc::get_mut(&mut buffer).is_some() {
            pool.push(buffer);
        } else {
            drop(buffer);
        }
    }

    fn has_left(&self, rank: usize) -> bool {
        self.left[rank].load(Ordering::SeqCst)
    }

    fn culprit(&self) -> Option<usize> {
        let culprit = self.culprit.load(Ordering::SeqCst);
        (culprit != NOBODY).then_some(culprit)
    }

    fn abort(&self, culprit: usize) {
        let first =
            self.culprit.compare_exchange(NOBODY, culprit, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok() {
            self.mailboxes.iter().for_each(Mailbox::wake);
        }
    }
}

impl InProcess {
    fn lost(&self, peer: usize, operation: Operation<'_>) -> ExchangeError {
        ExchangeError::PeerLost { peer, operation: operation.to_string() }
    }

    fn accept(
        &mut self,
        letter: Letter,
        during: Operation<'_>,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header), ExchangeError> {
        self.traffic.bytes_down += (HEADER_BYTES + letter.payload.len()) as u64;
        self.traffic.messages_down += 1;
        let header = Header::from_bytes(letter.header)
            .filter(|header| header.length as usize == letter.payload.len())
            .ok_or_else(|| ExchangeError::Protocol {
                peer: letter.from,
                operation: during.to_string(),
                what: format!("the header {:?}", letter.header),
            })?;
        let mut payload = letter.payload;
        match Arc::get_mut(&mut payload) {
            Some(payload) => std::mem::swap(into, payload),
            None => into.clone_from(&payload),
        }
        self.group.release(payload);
        Ok((letter.from, header))
    }

    /// The payload in a buffer of the pool.
    fn wrap(&self, payload: &[u8]) -> Arc<Vec<u8>> {
        let mut shared = self.group.take_buffer();
        let buffer = Arc::get_mut(&mut shared).expect("buffers of the pool are nobody else's");
        buffer.clear();
        buffer.extend_from_slice(payload);
        shared
    }

    fn post(
        &mut self,
        to: usize,
        operation: Operation<'_>,
        payload: Arc<Vec<u8>>,
    ) -> Result<(), ExchangeError> {
        let header = Header::new(operation, payload.len()).ok_or_else(|| {
            ExchangeError::Config(format!(
                "{operation}: {} bytes are too many for one message; the most is 4 GiB: split the \
                 tensors",
                payload.len()
            ))
        })?;
        if self.group.has_left(to) {
            let peer = self.group.culprit().unwrap_or(to);
            return Err(self.lost(peer, operation));
        }
        let bytes = (HEADER_BYTES + payload.len()) as u64;
        let now = Instant::now();
        let paced = self.options.link.map(|link| {
            let occupancy = link.occupancy(bytes);
            (self.egress.pass(now, occupancy) + link.latency, occupancy)
        });
        let (from, header) = (self.rank, header.to_bytes());
        self.group.mailboxes[to].deliver(|ingress| {
            let arrives = match paced {
                Some((ready, occupancy)) => ingress.pass(from, now, ready, occupancy),
                None => now,
            };
            Letter { from, header, payload, arrives }
        });
        self.traffic.bytes_up += bytes;
        self.traffic.messages_up += 1;
        Ok(())
    }
}

impl Transport for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.mailboxes.len()
    }

    fn deadline(&self) -> Duration {
        self.options.deadline
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn send(
        &mut self,
        to: usize,
        operation: Operation<'_>,
        payload: &[u8],
    ) -> Result<(), ExchangeError> {
        if to >= self.size() || to == self.rank {
            return Err(ExchangeError::Config(format!(
                "rank {} cannot send to rank {to}; the ranks are 0 to {}",
                self.rank,
                self.size() - 1
            )));
        }
        let payload = self.wrap(payload);
        self.post(to, operation, payload)
    }

    fn send_to_others(
        &mut self,
        operation: Operation<'_>,
        payload: &[u8],
    ) -> Result<(), ExchangeError> {
        let (rank, size) = (self.rank, self.size());
        let payload = self.wrap(payload);
        let sent = (rank + 1..size)
            .chain(0..rank)
            .try_for_each(|to| self.post(to, operation, Arc::clone(&payload)));
        self.group.release(payload);
        sent
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header), ExchangeError> {
        let start = Instant::now();
        let group = Arc::clone(&self.group);
        let mailbox = &group.mailboxes[self.rank];
        let mut inbox = mailbox.lock();
        loop {
            let now = Instant::now();
            let next = inbox.first(from);
            let arrives = next.map(|at| inbox.letters[at].arrives);
            if let (Some(at), true) = (next, arrives.is_some_and(|at| at <= now)) {
                let letter = inbox.letters.remove(at).expect("the position was just found");
                drop(inbox);
                return self.accept(letter, during, into);
            }
            if let Some(culprit) = group.culprit() {
                return Err(self.lost(culprit, during));
            }
            if arrives.is_none() {
                // Under the lock: who left before now has sent what it had to send.
                if let Some(&peer) = from.iter().find(|&&peer| group.has_left(peer)) {
                    return Err(self.lost(peer, during));
                }
            }
            if now >= until {
                return Err(ExchangeError::Deadline {
                    peer: from.first().copied().unwrap_or(self.rank),
                    operation: during.to_string(),
                    deadline: until.saturating_duration_since(start),
                });
            }
            inbox = mailbox.wait(inbox, arrives.map_or(until, |at| at.min(until)));
        }
    }

    fn abort(&mut self, culprit: usize) {
        self.group.abort(culprit);
    }
}

/// A rank that panics stops all; one that merely leaves stops those who still need it.
impl Drop for InProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.group.abort(self.rank);
        }
        self.group.left[self.rank].store(true, Ordering::SeqCst);
        self.group.mailboxes.iter().for_each(Mailbox::wake);
    }
}
