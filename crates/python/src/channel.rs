//! A [`Transport`] over a PyTorch process group, by way of the package's `Channel`, which posts sends and receives
//! of byte tensors.
//!
//! A message is the header of twelve bytes and the payload. Receivers do not know lengths beforehand; they post a
//! buffer of [`PART`] bytes, into which most messages fit whole, and a longer one comes in parts of this length, of
//! which the header has told. A header whose first byte is 0 is the notice that a rank has given up.

use std::time::{Duration, Instant};

use gradwire_exchange::{
    ExchangeError, HEADER_BYTES, Header, Operation, Phase, Traffic, Transport,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::buffer::Bytes;

/// The most bytes of a message, header included, that travel in one send.
const PART: usize = 1 << 20;

/// One rank's end of the group.
pub(crate) struct Channel {
    channel: Py<PyAny>,
    rank: usize,
    size: usize,
    deadline: Duration,
    traffic: Traffic,
    aborted: bool,
}

impl Channel {
    /// Wraps the package's object, which has `rank`, `size` and the methods used here.
    pub(crate) fn new(channel: &Bound<'_, PyAny>, deadline: Duration) -> PyResult<Self> {
        channel.setattr("part", PART)?;
        Ok(Self {
            rank: channel.getattr("rank")?.extract()?,
            size: channel.getattr("size")?.extract()?,
            channel: channel.clone().unbind(),
            deadline,
            traffic: Traffic::default(),
            aborted: false,
        })
    }

    /// Calls the package, and says in the exchange's words what went wrong.
    fn call<R>(
        &self,
        peer: usize,
        operation: Operation<'_>,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, ExchangeError> {
        let called = Python::try_attach(|py| {
            call(self.channel.bind(py)).map_err(|error| {
                let text = error.to_string();
                let operation = operation.to_string();
                if !error.is_instance_of::<PyRuntimeError>(py) {
                    ExchangeError::Config(format!("{operation} with rank {peer}: {text}"))
                } else if text.contains("imed out") || text.contains("timeout") {
                    ExchangeError::Deadline { peer, operation, deadline: self.deadline }
                } else {
                    ExchangeError::PeerLost { peer, operation }
                }
            })
        });
        called.unwrap_or_else(|| Err(ExchangeError::Config("the interpreter is ending".into())))
    }

    /// A part of a message, of at most `len` bytes.
    fn receive(
        &self,
        from: usize,
        len: usize,
        until: Instant,
        during: Operation<'_>,
    ) -> Result<Bytes, ExchangeError> {
        // Gloo closes every connection when a receive times out, so that a time that has passed asks for a little.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(5));
        let receive = |channel: &Bound<'_, PyAny>| {
            channel.call_method1("receive", (from, len, left.as_secs_f64()))?.extract::<usize>()
        };
        Ok(Bytes::new(self.call(from, during, receive)?, len))
    }

    /// Lays out header and payload in a buffer that is free, and sends it to some ranks.
    fn post(
        &mut self,
        to: &[usize],
        operation: Operation<'_>,
        header: [u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<(), ExchangeError> {
        let Some(&first) = to.first() else { return Ok(()) };
        let len = HEADER_BYTES + payload.len();
        let seconds = self.deadline.as_secs_f64();
        for &peer in to {
            self.call(peer, operation, |channel| {
                channel.call_method1("settle", (to, peer, seconds)).map(drop)
            })?;
        }
        let address = self.call(first, operation, |channel| {
            channel.call_method1("outgoing", (to, len))?.extract::<usize>()
        })?;
        let mut bytes = Bytes::new(address, len);
        let (head, tail) = bytes.get_mut().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header);
        tail.copy_from_slice(payload);
        for &peer in to {
            self.call(peer, operation, |channel| channel.call_method1("send", (peer,)).map(drop))?;
            self.traffic.bytes_up += len as u64;
            self.traffic.messages_up += 1;
        }
        Ok(())
    }

    fn header(
        operation: Operation<'_>,
        payload: &[u8],
    ) -> Result<[u8; HEADER_BYTES], ExchangeError> {
        Header::new(operation, payload.len()).map(Header::to_bytes).ok_or_else(|| {
            ExchangeError::Config(format!(
                "{operation}: {} bytes are too many for one message; the most is 4 GiB: make the buckets smaller",
                payload.len()
            ))
        })
    }
}

impl Transport for Channel {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
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
        self.post(&[to], operation, Self::header(operation, payload)?, payload)
    }

    fn send_to_others(
        &mut self,
        operation: Operation<'_>,
        payload: &[u8],
    ) -> Result<(), ExchangeError> {
        let others: Vec<_> = (self.rank + 1..self.size).chain(0..self.rank).collect();
        self.post(&others, operation, Self::header(operation, payload)?, payload)
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header), ExchangeError> {
        let &[peer] = from else {
            return Err(ExchangeError::Config(format!(
                "{during}: a process group cannot wait for the first of {} ranks; use all-reduce, all-gather or \
                 scatter-reduce",
                from.len()
            )));
        };
        let first = self.receive(peer, PART, until, during)?;
        let (head, rest) = first.get().split_at(HEADER_BYTES);
        let head: [u8; HEADER_BYTES] = head.try_into().expect("it was cut to this length");
        self.traffic.bytes_down += HEADER_BYTES as u64;
        self.traffic.messages_down += 1;
        if head[0] == 0 {
            let culprit = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            return Err(ExchangeError::PeerLost { peer: culprit, operation: during.to_string() });
        }
        let header = Header::from_bytes(head).ok_or_else(|| ExchangeError::Protocol {
            peer,
            operation: during.to_string(),
            what: format!("the header {head:?}"),
        })?;
        let length = header.length as usize;
        self.traffic.bytes_down += length as u64;
        into.clear();
        // No more than that: twice the length of a large message is a lot.
        into.reserve_exact(length);
        into.extend_from_slice(&rest[..length.min(rest.len())]);
        while into.len() < length {
            let part = self.receive(peer, PART.min(length - into.len()), until, during)?;
            into.extend_from_slice(part.get());
        }
        Ok((peer, header))
    }

    /// A message leaves when its receiver asks for it, and a group that is destroyed before takes it along.
    fn flush(&mut self) -> Result<(), ExchangeError> {
        let operation = Operation::whole(Phase::Barrier, 0);
        let seconds = self.deadline.as_secs_f64();
        (0..self.size).filter(|&peer| peer != self.rank).try_for_each(|peer| {
            self.call(peer, operation, |channel| {
                channel.call_method1("flush", (peer, seconds)).map(drop)
            })
        })
    }

    /// Sends the notice to all who are still there. Whoever waits for this rank gets it at once; whoever is not there
    /// yet finds it, or a closed connection.
    fn abort(&mut self, culprit: usize) {
        if std::mem::replace(&mut self.aborted, true) {
            return;
        }
        let mut notice = [0; HEADER_BYTES];
        notice[4..8].copy_from_slice(&(culprit as u32).to_le_bytes());
        Python::try_attach(|py| {
            // Nobody is left to hear of an error.
            let _ = self.channel.bind(py).call_method1("notify", (&notice[..], culprit));
        });
    }
}
