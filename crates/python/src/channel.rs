//! A [`Transport`] over a PyTorch process group. The Python package's `Channel` posts sends and
//! receives of byte tensors.
//!
//! A message is a header of twelve bytes and the payload. A receiver does not know the length
//! beforehand. It posts a buffer of [`PART`] bytes, which most messages fit into. The rest of a
//! longer message follows in parts of this length. The receiver knows their number from the header,
//! so it posts a buffer for the next part before it waits for one. The buffer for a first part is
//! posted before this rank sends to the same peer. If the first byte of a header is 0, the message
//! is the notice that a rank has aborted.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use gradwire_exchange::{
    Endpoint, ExchangeError, HEADER_BYTES, Header, Operation, Phase, Result, Transport,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::buffer::Bytes;

/// The most bytes of a message, header included, that travel in one send.
const PART: usize = 1 << 20;

/// One rank's end of the process group.
pub(crate) struct Channel {
    channel: Py<PyAny>,
    endpoint: Endpoint,
    aborted: bool,
    /// Tells its receiver that this end is closed.
    _open: Sender<()>,
}

impl Drop for Channel {
    /// Closes the connections. Otherwise the dropped object would keep them until another thread
    /// next runs Python.
    fn drop(&mut self) {
        Python::try_attach(|py| {
            // Nobody is left to receive an error.
            let _ = self.channel.bind(py).call_method0("close");
        });
    }
}

impl Channel {
    /// Wraps the package's object, which has `rank`, `size` and the methods used here. `open` is
    /// dropped with this end.
    pub(crate) fn new(
        channel: &Bound<'_, PyAny>,
        deadline: Duration,
        open: Sender<()>,
    ) -> PyResult<Self> {
        channel.setattr("part", PART)?;
        let (rank, size) = (channel.getattr("rank")?, channel.getattr("size")?);
        let endpoint = Endpoint::new(rank.extract()?, size.extract()?, deadline);
        Ok(Self { channel: channel.clone().unbind(), endpoint, aborted: false, _open: open })
    }

    /// Calls the package, and turns its exceptions into errors of the exchange.
    fn call<R>(
        &self,
        peer: usize,
        operation: Operation<'_>,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R> {
        let called = Python::try_attach(|py| {
            call(self.channel.bind(py)).map_err(|error| {
                let text = error.to_string();
                if !error.is_instance_of::<PyRuntimeError>(py) {
                    ExchangeError::System(format!("{operation} with rank {peer}: {text}"))
                } else if text.contains("imed out") || text.contains("timeout") {
                    ExchangeError::late(peer, operation, self.endpoint.deadline)
                } else {
                    ExchangeError::lost(peer, operation)
                }
            })
        });
        called.unwrap_or_else(|| Err(ExchangeError::Ended("the interpreter is ending".to_owned())))
    }

    /// A part of a message with `len` bytes; `more` says that another part follows.
    fn receive(
        &self,
        from: usize,
        len: usize,
        more: bool,
        until: Instant,
        during: Operation<'_>,
    ) -> Result<Bytes> {
        // Gloo closes every connection when a receive times out, so wait briefly even if the time
        // has passed.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(5));
        let receive = |channel: &Bound<'_, PyAny>| {
            channel.call_method1("receive", (from, more, left.as_secs_f64()))?.extract::<usize>()
        };
        Ok(Bytes::new(self.call(from, during, receive)?, len))
    }

    /// Writes header and payload to a free buffer, and sends it to some ranks.
    fn post(&mut self, to: &[usize], operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let Some(&first) = to.first() else { return Ok(()) };
        let header = self.endpoint.header(first, operation, payload.len(), u32::MAX as usize)?;
        let len = HEADER_BYTES + payload.len();
        let seconds = self.endpoint.deadline.as_secs_f64();
        for &peer in to {
            self.call(peer, operation, |channel| {
                channel.call_method1("prepare", (to, peer, seconds)).map(drop)
            })?;
        }
        let address = self.call(first, operation, |channel| {
            channel.call_method1("outgoing", (to, len))?.extract::<usize>()
        })?;
        let mut bytes = Bytes::new(address, len);
        let (head, tail) = bytes.get_mut().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.to_bytes());
        tail.copy_from_slice(payload);
        for &peer in to {
            self.call(peer, operation, |channel| channel.call_method1("send", (peer,)).map(drop))?;
            self.endpoint.count_sent(payload.len());
        }
        Ok(())
    }
}

impl Transport for Channel {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        self.post(&[to], operation, payload)
    }

    fn send_to_others(&mut self, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let others: Vec<_> = self.endpoint.others().collect();
        self.post(&others, operation, payload)
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        let &[peer] = from else {
            return Err(ExchangeError::config(format!(
                "{during}: a process group cannot wait for the first of {} ranks; use all-reduce, all-gather or \
                 scatter-reduce",
                from.len()
            )));
        };
        let first = self.receive(peer, PART, false, until, during)?;
        let (head, rest) = first.get().split_at(HEADER_BYTES);
        let head: [u8; HEADER_BYTES] = head.try_into().expect("it was cut to this length");
        if head[0] == 0 {
            let culprit = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            return Err(ExchangeError::lost(culprit, during));
        }
        let header = Header::from_bytes(head)
            .ok_or_else(|| ExchangeError::protocol(peer, during, format!("the header {head:?}")))?;
        let length = header.length as usize;
        self.endpoint.count_received(length);
        into.clear();
        // Exactly this length: growth by doubling would waste memory on a large message.
        into.try_reserve_exact(length).map_err(|_| {
            let what = format!("a message of {length} bytes, for which memory is missing");
            ExchangeError::protocol(peer, during, what)
        })?;
        into.extend_from_slice(&rest[..length.min(rest.len())]);
        while into.len() < length {
            // A part that arrives shows that the peer is there, however slow the link.
            let until = until.max(Instant::now() + self.endpoint.deadline);
            let left = length - into.len();
            let part = self.receive(peer, PART.min(left), left > PART, until, during)?;
            into.extend_from_slice(part.get());
        }
        Ok((peer, header))
    }

    /// A message leaves when its receiver asks for it. If the process group ends before, the
    /// message is lost.
    fn flush(&mut self) -> Result<()> {
        let operation = Operation::whole(Phase::Barrier, 0);
        let seconds = self.endpoint.deadline.as_secs_f64();
        self.endpoint.others().try_for_each(|peer| {
            self.call(peer, operation, |channel| {
                channel.call_method1("flush", (peer, seconds)).map(drop)
            })
        })
    }

    /// Sends the notice to all ranks that have not left. A rank that waits for this one gets it at
    /// once. Other ranks find it later, or find a closed connection.
    fn abort(&mut self, culprit: usize) {
        if std::mem::replace(&mut self.aborted, true) {
            return;
        }
        let mut notice = [0; HEADER_BYTES];
        notice[4..8].copy_from_slice(&(culprit as u32).to_le_bytes());
        Python::try_attach(|py| {
            // Nobody is left to receive an error.
            let _ = self.channel.bind(py).call_method1("notify", (&notice[..], culprit));
        });
    }
}
