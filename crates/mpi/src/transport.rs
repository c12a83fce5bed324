//! The transport.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradwire_exchange::{
    ExchangeError, HEADER_BYTES, Header, Operation, Phase, Traffic, Transport,
};

use crate::call::{Arrival, Fault, MOST_BYTES};
use crate::links::Links;
use crate::pause::Pause;
use crate::watchdog::Section;

/// Where the links lie while no transport uses them.
pub(crate) type Home = Arc<Mutex<Option<Links>>>;

/// One process's end of the job's transport.
pub struct Mpi {
    /// There until it is dropped.
    links: Option<Links>,
    home: Home,
    deadline: Duration,
    traffic: Traffic,
    /// Who is asked first for a message; it goes round, so that nobody is always last.
    turn: usize,
}

impl Mpi {
    pub(crate) fn new(links: Links, home: Home, deadline: Duration) -> Self {
        Self { links: Some(links), home, deadline, traffic: Traffic::default(), turn: 0 }
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
    ) -> Result<(usize, Header), ExchangeError> {
        let (from, length) = (arrival.from, arrival.length);
        let mut transfer =
            arrival.receive(std::mem::take(into)).map_err(|fault| failed(from, during, fault))?;
        let start = Instant::now();
        // What has begun to come is taken, also by those who do not wait.
        let until = if until > start { until } else { start + self.deadline };
        let _busy = self.links().busy(Section::Receive, until - start);
        let mut pause = Pause::default();
        while !transfer.is_done().map_err(|fault| failed(from, during, fault))? {
            if let Some(error) = self.given_up(&[], during) {
                return Err(error);
            }
            self.check_time(&[from], during, (start, until))?;
            pause.wait();
        }
        self.links_mut().wait_for(None);
        *into = transfer.into_bytes();
        self.traffic.bytes_down += length as u64;
        self.traffic.messages_down += 1;
        let header = take_header(into).ok_or_else(|| ExchangeError::Protocol {
            peer: from,
            operation: during.to_string(),
            what: format!("{length} bytes that do not end in a header of theirs"),
        })?;
        Ok((from, header))
    }

    /// Why nothing more will come of these ranks, if that is so.
    fn given_up(&mut self, from: &[usize], during: Operation<'_>) -> Option<ExchangeError> {
        let links = self.links_mut();
        if let Err(fault) = links.hear() {
            return Some(failed(from.first().copied().unwrap_or(links.rank), during, fault));
        }
        let silent = from.iter().copied().find(|&peer| links.is_silent(peer));
        links.culprit().or(silent).map(|peer| lost(peer, during))
    }

    /// Fails when the time is over; tells the others for whom this rank waits when most of it is.
    fn check_time(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        (start, until): (Instant, Instant),
    ) -> Result<(), ExchangeError> {
        let now = Instant::now();
        let within = until.saturating_duration_since(start);
        if now < until {
            // Who waits for several, as a server does, does not know for whom.
            if let (&[peer], true) = (from, until - now < within / 4) {
                self.links_mut().wait_for(Some(peer));
            }
            return Ok(());
        }
        let peer = self.links().at_fault(from.first().copied().unwrap_or(self.rank()));
        Err(ExchangeError::Deadline { peer, operation: during.to_string(), deadline: within })
    }

    fn check_receiver(&self, to: usize) -> Result<(), ExchangeError> {
        let Links { rank, size, .. } = *self.links();
        if to < size && to != rank {
            return Ok(());
        }
        Err(ExchangeError::Config(format!(
            "rank {rank} cannot send to rank {to}; the ranks are 0 to {}",
            size - 1
        )))
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.links().rank
    }

    fn size(&self) -> usize {
        self.links().size
    }

    fn deadline(&self) -> Duration {
        self.deadline
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
        self.check_receiver(to)?;
        let fits = |_: &Header| payload.len() <= MOST_BYTES - HEADER_BYTES;
        let header = Header::new(operation, payload.len()).filter(fits).ok_or_else(|| {
            ExchangeError::Config(format!(
                "{operation}: {} bytes are too many for one message; the most over MPI is 2 GiB: \
                 split the tensors",
                payload.len()
            ))
        })?;
        let deadline = self.deadline;
        let links = self.links_mut();
        let _busy = links.busy(Section::Send, deadline);
        links.hear().map_err(|fault| failed(to, operation, fault))?;
        if links.has_left(to) {
            return Err(lost(links.culprit().unwrap_or(to), operation));
        }
        let mut bytes = links.buffer();
        bytes.reserve(payload.len() + HEADER_BYTES);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&header.to_bytes());
        let length = bytes.len() as u64;
        links.send(to, bytes).map_err(|fault| failed(to, operation, fault))?;
        self.traffic.bytes_up += length;
        self.traffic.messages_up += 1;
        Ok(())
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header), ExchangeError> {
        let start = Instant::now();
        let _busy = self.links().busy(Section::Receive, until.saturating_duration_since(start));
        let mut pause = Pause::default();
        self.turn = self.turn.wrapping_add(1);
        loop {
            let turn = self.turn;
            let arrival = self.links_mut().probe(from, turn);
            match arrival.map_err(|(peer, fault)| failed(peer, during, fault))? {
                Some(arrival) => return self.accept(arrival, during, until, into),
                None => {
                    if let Some(error) = self.given_up(from, during) {
                        return Err(error);
                    }
                }
            }
            self.check_time(from, during, (start, until))?;
            pause.wait();
        }
    }

    /// MPI goes on with what it sends only while it is called: without this the rest of a long message would wait
    /// for the next step, and its receiver with it.
    fn flush(&mut self) -> Result<(), ExchangeError> {
        let (until, deadline) = (Instant::now() + self.deadline, self.deadline);
        let links = self.links_mut();
        let _busy = links.busy(Section::Flush, deadline);
        if links.settle(until, |links, _| links.culprit().is_some(), |_| true) {
            return Ok(());
        }
        let operation = Operation::whole(Phase::Barrier, 0);
        let peer = links.waits_for().unwrap_or(links.rank);
        Err(match links.culprit() {
            Some(culprit) => lost(culprit, operation),
            None => ExchangeError::Deadline { peer, operation: operation.to_string(), deadline },
        })
    }

    fn abort(&mut self, culprit: usize) {
        let deadline = self.deadline;
        let links = self.links_mut();
        let _busy = links.busy(Section::Leave, links.patience(deadline));
        links.abort(culprit);
    }
}

/// A rank that panics stops all; one that merely leaves stops those who still need it. What was sent
/// gets out first, if it can.
impl Drop for Mpi {
    fn drop(&mut self) {
        let Some(mut links) = self.links.take() else { return };
        let _busy = links.busy(Section::Leave, links.patience(self.deadline));
        if std::thread::panicking() {
            links.abort(links.rank);
        }
        links.leave();
        links.settle(Instant::now() + self.deadline, Links::is_over, |_| true);
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(links);
    }
}

/// Takes the header off the end of a message, if it is one and says how long the rest is.
fn take_header(message: &mut Vec<u8>) -> Option<Header> {
    let header = Header::from_bytes(*message.last_chunk()?)?;
    message.truncate(message.len() - HEADER_BYTES);
    (header.length as usize == message.len()).then_some(header)
}

fn lost(peer: usize, during: Operation<'_>) -> ExchangeError {
    ExchangeError::PeerLost { peer, operation: during.to_string() }
}

fn failed(peer: usize, during: Operation<'_>, fault: Fault) -> ExchangeError {
    ExchangeError::PeerLost { peer, operation: format!("{during}, {fault}") }
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
