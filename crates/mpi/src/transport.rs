//! A [`Transport`] over MPI.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradwire_exchange::{
    Endpoint, ExchangeError, HEADER_BYTES, Header, Operation, Phase, Result, Transport,
};

use crate::call::{Arrival, Fault, MOST_BYTES};
use crate::links::Links;
use crate::pause::Pause;

/// The place of the links while no transport uses them.
pub(crate) type Home = Arc<Mutex<Option<Links>>>;

/// One process's end of the job's transport.
pub struct Mpi {
    /// `Some` until it is dropped.
    links: Option<Links>,
    home: Home,
    endpoint: Endpoint,
    /// The rank whose messages are looked for first; changes with each receive, so no rank is
    /// always last.
    turn: usize,
    /// The operation of the last sent message.
    sent: Operation<'static>,
}

impl Mpi {
    pub(crate) fn new(links: Links, home: Home, deadline: Duration) -> Self {
        let endpoint = Endpoint::new(links.rank, links.size, deadline);
        let sent = Operation::whole(Phase::Handshake, 0);
        Self { links: Some(links), home, endpoint, turn: 0, sent }
    }

    fn links(&self) -> &Links {
        self.links.as_ref().expect("a transport has links until it is dropped")
    }

    fn links_mut(&mut self) -> &mut Links {
        self.links.as_mut().expect("a transport has links until it is dropped")
    }

    /// Receives a message that has arrived; its last bytes are the header.
    fn accept(
        &mut self,
        arrival: Arrival,
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let (from, length) = (arrival.from, arrival.length);
        let mut transfer =
            arrival.receive(std::mem::take(into)).map_err(|fault| failed(from, during, fault))?;
        let start = Instant::now();
        // A message that has begun to arrive is received, even by a caller that does not wait.
        let until = if until > start { until } else { start + self.endpoint.deadline };
        let _busy = self.links().busy("a receive", until - start);
        let mut pause = Pause::default();
        while !transfer.is_done().map_err(|fault| failed(from, during, fault))? {
            self.given_up(&[], during).map_or(Ok(()), Err)?;
            self.check_time(&[from], during, start, until)?;
            pause.wait();
        }
        self.links_mut().wait_for(None);
        *into = transfer.into_bytes();
        self.endpoint.count_received(length.saturating_sub(HEADER_BYTES));
        let header = take_header(into).ok_or_else(|| {
            let what = format!("{length} bytes that do not end with a header");
            ExchangeError::protocol(from, during, what)
        })?;
        Ok((from, header))
    }

    /// The reason why these ranks will send no more messages, if there is one.
    fn given_up(&mut self, from: &[usize], during: Operation<'_>) -> Option<ExchangeError> {
        let links = self.links_mut();
        if let Err(fault) = links.hear() {
            return Some(failed(from.first().copied().unwrap_or(links.rank), during, fault));
        }
        let silent = from.iter().copied().find(|&peer| links.is_silent(peer));
        links.culprit().or(silent).map(|peer| ExchangeError::lost(peer, during))
    }

    /// Fails after `until`. After three quarters of the time, announces the rank that this rank
    /// waits for.
    fn check_time(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        start: Instant,
        until: Instant,
    ) -> Result<()> {
        let now = Instant::now();
        let within = until.saturating_duration_since(start);
        if now < until {
            // A rank that waits for several, as a server does, cannot name one.
            if let (&[peer], true) = (from, until - now < within / 4) {
                self.links_mut().wait_for(Some(peer));
            }
            return Ok(());
        }
        let peer = self.links().at_fault(from.first().copied().unwrap_or(self.rank()));
        Err(ExchangeError::late(peer, during, within))
    }
}

impl Transport for Mpi {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let most = MOST_BYTES - HEADER_BYTES;
        let header = self.endpoint.header(to, operation, payload.len(), most)?;
        let deadline = self.endpoint.deadline;
        let links = self.links_mut();
        let _busy = links.busy("a send", deadline);
        links.hear().map_err(|fault| failed(to, operation, fault))?;
        if links.has_left(to) {
            return Err(ExchangeError::lost(links.culprit().unwrap_or(to), operation));
        }
        let mut bytes = links.buffer();
        bytes.reserve(payload.len() + HEADER_BYTES);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&header.to_bytes());
        links.send(to, bytes).map_err(|fault| failed(to, operation, fault))?;
        self.endpoint.count_sent(payload.len());
        self.sent = Operation::whole(operation.phase, operation.step);
        Ok(())
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let start = Instant::now();
        let _busy = self.links().busy("a receive", until.saturating_duration_since(start));
        let mut pause = Pause::default();
        self.turn = self.turn.wrapping_add(1);
        loop {
            let turn = self.turn;
            let arrival = self.links_mut().probe(from, turn);
            match arrival.map_err(|(peer, fault)| failed(peer, during, fault))? {
                Some(arrival) => return self.accept(arrival, during, until, into),
                None => self.given_up(from, during).map_or(Ok(()), Err)?,
            }
            self.check_time(from, during, start, until)?;
            pause.wait();
        }
    }

    /// MPI sends only while it is called: without this, the rest of a long message and its receiver
    /// would wait for the next step.
    fn flush(&mut self) -> Result<()> {
        let (deadline, operation) = (self.endpoint.deadline, self.sent);
        let until = Instant::now() + deadline;
        let links = self.links_mut();
        let _busy = links.busy("getting its messages out", deadline);
        if links.settle(until, |links, _| links.culprit().is_some(), |_| true) {
            return Ok(());
        }
        let peer = links.waits_for().unwrap_or(links.rank);
        Err(match links.culprit() {
            Some(culprit) => ExchangeError::lost(culprit, operation),
            None => ExchangeError::late(peer, operation, deadline),
        })
    }

    fn abort(&mut self, culprit: usize) {
        let deadline = self.endpoint.deadline;
        let links = self.links_mut();
        let _busy = links.busy("leaving a run", links.wait_at_end(deadline));
        links.abort(culprit);
    }
}

/// A rank that panics stops all ranks; a rank that merely leaves stops the ranks that still need
/// it. Its messages are sent first, if possible.
impl Drop for Mpi {
    fn drop(&mut self) {
        let Some(mut links) = self.links.take() else { return };
        let _busy = links.busy("leaving a run", links.wait_at_end(self.endpoint.deadline));
        if std::thread::panicking() {
            links.abort(links.rank);
        }
        links.leave();
        links.settle(Instant::now() + self.endpoint.deadline, Links::is_over, |_| true);
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(links);
    }
}

/// Removes the header from the end of a message; `None` if there is none, or if it gives another
/// length.
fn take_header(message: &mut Vec<u8>) -> Option<Header> {
    let header = Header::from_bytes(*message.last_chunk()?)?;
    message.truncate(message.len() - HEADER_BYTES);
    (header.length as usize == message.len()).then_some(header)
}

fn failed(peer: usize, during: Operation<'_>, fault: Fault) -> ExchangeError {
    ExchangeError::lost(peer, format!("{during}, {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_taken_off_only_where_it_fits() {
        let header = Header::new(Operation::whole(Phase::Gather, 3), 2).unwrap();
        let message = |payload: &[u8]| [payload, &header.to_bytes()].concat();
        let mut good = message(b"ab");
        assert_eq!(take_header(&mut good), Some(header));
        assert_eq!(good, b"ab");
        for mut bad in [message(b"a"), message(b"abc"), vec![6; 11], vec![99; 14]] {
            assert_eq!(take_header(&mut bad), None);
        }
    }
}
