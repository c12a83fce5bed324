//! A [`Transport`] over a PyTorch process group. The Python package's `Channel` posts sends and
//! receives of byte tensors.
//!
//! A message is a header of twelve bytes and the payload. A receiver does not know the length
//! beforehand. It posts a buffer of [`PART`] bytes, which most messages fit into. The rest of a
//! longer message follows in parts of this length. The receiver knows their number from the header,
//! so it posts a buffer for the next part before it waits for one. The buffer for a first part is
//! posted before this rank sends to the same peer. If the first byte of a header is 0, the message
//! is the notice that a rank has aborted.
//!
//! The channel copies a message that it sends, because the message leaves later. In
//! [`all_to_all`](Transport::all_to_all) it copies only the first part, and waits until the others
//! have left.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use gradwire_exchange::patience::GRACE;
use gradwire_exchange::{
    Arrival, Endpoint, ExchangeError, HEADER_BYTES, Header, Incoming, Operation, Outgoing, Phase,
    Result, Transport,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::buffer::Bytes;

/// The most bytes of a message, header included, that travel in one send.
const PART: usize = 1 << 20;

/// The most bytes of a payload in the first part.
const FIRST: usize = PART - HEADER_BYTES;

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

    /// Writes header and payload to a free buffer, and sends it to some ranks. What follows the
    /// first part of a payload that is `lent` is sent from its place.
    fn post(
        &mut self,
        to: &[usize],
        operation: Operation<'_>,
        payload: &[u8],
        lent: bool,
    ) -> Result<()> {
        let Some(&first) = to.first() else { return Ok(()) };
        let header = self.endpoint.header(first, operation, payload.len(), u32::MAX as usize)?;
        let copied = if lent { payload.len().min(FIRST) } else { payload.len() };
        let (copied, rest) = payload.split_at(copied);
        let len = HEADER_BYTES + copied.len();
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
        tail.copy_from_slice(copied);
        if !rest.is_empty() {
            self.call(first, operation, |channel| {
                channel.call_method1("lend", (rest.as_ptr().addr(), rest.len())).map(drop)
            })?;
        }
        for &peer in to {
            self.call(peer, operation, |channel| channel.call_method1("send", (peer,)).map(drop))?;
            self.endpoint.count_sent(payload.len());
        }
        Ok(())
    }

    /// Receives a message, and calls `take` with its header and its bytes, part by part.
    fn receive_message(
        &mut self,
        peer: usize,
        during: Operation<'_>,
        until: Instant,
        take: &mut dyn FnMut(Header, &[u8]) -> Result<()>,
    ) -> Result<Header> {
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
        let rest = &rest[..length.min(rest.len())];
        take(header, rest)?;
        let mut left = length - rest.len();
        while left > 0 {
            // A part that arrives shows that the peer is there, however slow the link.
            let until = until.max(Instant::now() + self.endpoint.deadline);
            let part = self.receive(peer, PART.min(left), left > PART, until, during)?;
            take(header, part.get())?;
            left -= part.get().len();
        }
        Ok(header)
    }

    /// [`Transport::all_to_all`], without the care for messages that are still being sent.
    fn exchange(
        &mut self,
        operation: Operation<'_>,
        outgoing: Outgoing<'_>,
        incoming: Incoming<'_>,
    ) -> Result<()> {
        let others: Vec<_> = self.endpoint.others().collect();
        match outgoing {
            Outgoing::Same(message) => self.post(&others, operation, message, true)?,
            Outgoing::Each(message) => {
                others.iter().try_for_each(|&to| self.post(&[to], operation, message(to), true))?
            }
        }
        let endpoint = self.endpoint;
        for from in (0..endpoint.size).filter(|&from| from != endpoint.rank) {
            let (until, mut at) = (Instant::now() + endpoint.deadline, 0);
            self.receive_message(from, operation, until, &mut |header, bytes| {
                endpoint.check(from, header, operation)?;
                incoming.check(from, header.length as usize, operation)?;
                (incoming.take)(Arrival { from, at, bytes });
                at += bytes.len();
                Ok(())
            })?;
        }
        let lends = |&to: &usize| outgoing.to(to).len() > FIRST;
        others
            .iter()
            .copied()
            .filter(lends)
            .try_for_each(|to| self.flush_to(to, operation, endpoint.deadline))
    }

    /// Waits until all messages to a rank have left.
    fn flush_to(&self, peer: usize, operation: Operation<'_>, within: Duration) -> Result<()> {
        self.call(peer, operation, |channel| {
            channel.call_method1("flush", (peer, within.as_secs_f64())).map(drop)
        })
    }
}

impl Transport for Channel {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        self.post(&[to], operation, payload, false)
    }

    fn send_to_others(&mut self, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        let others: Vec<_> = self.endpoint.others().collect();
        self.post(&others, operation, payload, false)
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
        into.clear();
        let header = self.receive_message(peer, during, until, &mut |header, bytes| {
            // Exactly this length: growth by doubling would waste memory on a large message.
            let left = header.length as usize - into.len();
            into.try_reserve_exact(left).map_err(|_| {
                let what = format!("a message of {left} bytes, for which memory is missing");
                ExchangeError::protocol(peer, during, what)
            })?;
            into.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok((peer, header))
    }

    /// After an error, tells the other ranks, and waits a moment: either all bytes leave, or all
    /// connections are closed.
    fn all_to_all(
        &mut self,
        operation: Operation<'_>,
        outgoing: Outgoing<'_>,
        incoming: Incoming<'_>,
    ) -> Result<()> {
        let exchanged = self.exchange(operation, outgoing, incoming);
        if let Err(error) = &exchanged {
            self.abort(error.culprit(self.endpoint.rank));
            for peer in self.endpoint.others() {
                // The first error counts.
                let _ = self.flush_to(peer, operation, GRACE);
            }
        }
        exchanged
    }

    /// A message leaves when its receiver asks for it. If the process group ends before, the
    /// message is lost.
    fn flush(&mut self) -> Result<()> {
        let (operation, deadline) = (Operation::whole(Phase::Barrier, 0), self.endpoint.deadline);
        self.endpoint.others().try_for_each(|peer| self.flush_to(peer, operation, deadline))
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
