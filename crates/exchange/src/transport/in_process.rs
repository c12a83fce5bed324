//! Ranks as threads of one process.
//!
//! Every rank has a mailbox. Buffers circulate: a send copies its payload into a buffer of a shared
//! pool; a receive takes that buffer and returns the receiver's old one. So a steady state
//! allocates no buffers. A payload for all ranks is copied once and shared until each has read it:
//! when `n` ranks send to one another, they hold `n` payloads, not `n²`.
//!
//! With a [`Link`] the transport is throttled. Each rank has an egress and an ingress, each of the
//! link's bandwidth, and a message arrives when it has passed both, one latency apart. The sender
//! does not wait, as with a network card that has its own queue; the receiver sleeps until the
//! message's last bit has arrived.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::inbox::{Letter, Mailbox, Pacer};
use super::{Endpoint, HEADER_BYTES, Header, Operation, Transport};
use crate::{ExchangeError, Link, Result};

/// No rank has aborted the run.
const NOBODY: usize = usize::MAX;

/// How in-process ranks are connected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// How long a rank waits for another. It must be longer than a single rank's pauses, such as an
    /// evaluation.
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
    let shared = Arc::new(Shared {
        mailboxes: (0..ranks).map(|_| Mailbox::default()).collect(),
        left: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
        culprit: AtomicUsize::new(NOBODY),
        pool: Mutex::default(),
    });
    (0..ranks)
        .map(|rank| InProcess {
            endpoint: Endpoint::new(rank, ranks, options.deadline),
            link: options.link,
            egress: Pacer::default(),
            shared: Arc::clone(&shared),
        })
        .collect()
}

/// One rank's end.
pub struct InProcess {
    endpoint: Endpoint,
    link: Option<Link>,
    egress: Pacer,
    shared: Arc<Shared>,
}

/// The state that the ranks share.
struct Shared {
    mailboxes: Vec<Mailbox>,
    left: Vec<AtomicBool>,
    culprit: AtomicUsize,
    /// Unused buffers.
    pool: Mutex<Vec<Arc<Vec<u8>>>>,
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Vec<Arc<Vec<u8>>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_buffer(&self) -> Arc<Vec<u8>> {
        self.pool().pop().unwrap_or_default()
    }

    /// Releases a buffer. The last of its users returns it to the pool; the lock orders them.
    fn release(&self, mut buffer: Arc<Vec<u8>>) {
        let mut pool = self.pool();
        if Arc::get_mut(&mut buffer).is_some() {
            pool.push(buffer);
        } else {
            // Under the lock: otherwise two users could each see the other's reference, and neither
            // would return the buffer.
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
    fn accept(
        &mut self,
        letter: Letter,
        during: Operation<'_>,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let Letter { from, header, mut payload, .. } = letter;
        self.endpoint.count_received(payload.len());
        let read = Header::from_bytes(header).filter(|read| read.length as usize == payload.len());
        let read = read.ok_or_else(|| {
            ExchangeError::protocol(from, during, format!("the header {header:?}"))
        })?;
        match Arc::get_mut(&mut payload) {
            Some(payload) => std::mem::swap(into, payload),
            None => into.clone_from(&payload),
        }
        self.shared.release(payload);
        Ok((from, read))
    }

    /// The payload in a buffer of the pool.
    fn wrap(&self, payload: &[u8]) -> Arc<Vec<u8>> {
        let mut wrapped = self.shared.take_buffer();
        let buffer = Arc::get_mut(&mut wrapped).expect("buffers of the pool are nobody else's");
        buffer.clear();
        buffer.extend_from_slice(payload);
        wrapped
    }

    fn post(&mut self, to: usize, operation: Operation<'_>, payload: Arc<Vec<u8>>) -> Result<()> {
        let length = payload.len();
        let header = self.endpoint.header(to, operation, length, u32::MAX as usize)?.to_bytes();
        if self.shared.has_left(to) {
            return Err(ExchangeError::lost(self.shared.culprit().unwrap_or(to), operation));
        }
        let now = Instant::now();
        let paced = self.link.map(|link| {
            let occupancy = link.occupancy((HEADER_BYTES + length) as u64);
            (self.egress.pass(now, occupancy) + link.latency, occupancy)
        });
        let from = self.endpoint.rank;
        self.shared.mailboxes[to].deliver(|ingress| {
            let arrives = match paced {
                Some((ready, occupancy)) => ingress.pass(from, now, ready, occupancy),
                None => now,
            };
            Letter { from, header, payload, arrives }
        });
        self.endpoint.count_sent(length);
        Ok(())
    }
}

impl Transport for InProcess {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let payload = self.wrap(payload);
        self.post(to, operation, payload)
    }

    fn send_to_others(&mut self, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let payload = self.wrap(payload);
        let mut others = self.endpoint.others();
        let sent = others.try_for_each(|to| self.post(to, operation, Arc::clone(&payload)));
        self.shared.release(payload);
        sent
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let mailbox = &shared.mailboxes[self.endpoint.rank];
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
            if let Some(culprit) = shared.culprit() {
                return Err(ExchangeError::lost(culprit, during));
            }
            if arrives.is_none() {
                // Checked under the lock: a rank that has left had sent all its messages.
                if let Some(&peer) = from.iter().find(|&&peer| shared.has_left(peer)) {
                    return Err(ExchangeError::lost(peer, during));
                }
            }
            if now >= until {
                let peer = from.first().copied().unwrap_or(self.endpoint.rank);
                let waited = until.saturating_duration_since(start);
                return Err(ExchangeError::late(peer, during, waited));
            }
            inbox = mailbox.wait(inbox, arrives.map_or(until, |at| at.min(until)));
        }
    }

    fn abort(&mut self, culprit: usize) {
        self.shared.abort(culprit);
    }
}

/// A rank that panics stops all ranks; a rank that merely leaves stops the ranks that still need
/// it.
impl Drop for InProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.abort(self.endpoint.rank);
        }
        self.shared.left[self.endpoint.rank].store(true, Ordering::SeqCst);
        self.shared.mailboxes.iter().for_each(Mailbox::wake);
    }
}
