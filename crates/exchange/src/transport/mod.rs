//! The transport: bytes between ranks, counted.

mod all_to_all;
mod endpoint;
pub mod in_process;
mod inbox;
mod operation;

use std::time::{Duration, Instant};

pub use all_to_all::{Arrival, Incoming, Outgoing};
pub use endpoint::Endpoint;
pub use operation::{HEADER_BYTES, Header, Operation, Phase};

use crate::{Result, Traffic};

/// One rank's connection to the other ranks.
///
/// Messages between two ranks arrive in the order they were sent. A send does not wait for the
/// receiver. Dropping a transport announces to the other ranks that this rank has left.
///
/// [`in_process`] connects threads, and the crate `gradwire-mpi` connects processes. The example
/// `two_processes` has a transport over TCP. To write one, keep an [`Endpoint`]. `send` gets the
/// header from [`Endpoint::header`] and counts the bytes. `recv_any` reads it with
/// [`Header::from_bytes`], checks its length, counts, and returns `PeerLost` or `Deadline` if
/// nothing comes. `abort` wakes all ranks. [`laws::check_transport`](crate::laws::check_transport)
/// checks it.
pub trait Transport: Send {
    /// This rank's number, the number of ranks, the deadline and the counted bytes.
    fn endpoint(&self) -> &Endpoint;

    /// This rank, from 0.
    fn rank(&self) -> usize {
        self.endpoint().rank
    }

    /// The number of ranks.
    fn size(&self) -> usize {
        self.endpoint().size
    }

    /// How long this rank waits for another.
    fn deadline(&self) -> Duration {
        self.endpoint().deadline
    }

    /// Everything sent and received so far.
    fn traffic(&self) -> Traffic {
        self.endpoint().traffic
    }

    /// Sends `payload` under a header made of `operation` and its length.
    ///
    /// # Errors
    /// `PeerLost` if the receiver has left; `Config` for a payload of 4 GiB or more, or a rank that
    /// does not exist.
    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()>;

    /// [Sends](Self::send) the same `payload` to every other rank. Each rank starts with the rank
    /// after it, so the ranks do not all send to the same receiver first.
    fn send_to_others(&mut self, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        self.endpoint().others().try_for_each(|to| self.send(to, operation, payload))
    }

    /// Waits until `until` for the next message of any rank in `from`; the payload replaces the
    /// content of `into`. Messages of other ranks stay in the queue. If `until` has passed, it
    /// takes a message that has already arrived, and does not wait.
    ///
    /// # Errors
    /// `PeerLost` if a rank of `from` has left and no message is on its way, or if some rank has
    /// [aborted](Self::abort) the run; `Deadline`, naming the first rank of `from`.
    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)>;

    /// Waits until all sent messages have left this rank, so it may compute for a while, or end.
    /// Does nothing for engines that send in the background.
    ///
    /// # Errors
    /// `PeerLost` or `Deadline`.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Tells every rank to stop waiting because of an error of rank `culprit`. Only the first call
    /// of a run counts.
    fn abort(&mut self, culprit: usize);

    /// Waits for the message of `operation` from one rank, until the deadline.
    ///
    /// # Errors
    /// The errors of [`recv_any`](Self::recv_any); `Protocol` if another message comes.
    fn recv(&mut self, from: usize, operation: Operation<'_>, into: &mut Vec<u8>) -> Result<()> {
        self.recv_within(from, operation, self.deadline(), into)
    }

    /// As [`recv`](Self::recv), with another deadline. A rank that waits for a waiting rank uses a
    /// longer deadline, so the other rank fails first and names the missing rank.
    fn recv_within(
        &mut self,
        from: usize,
        operation: Operation<'_>,
        within: Duration,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let until = Instant::now() + within;
        let (_, header) = self.recv_any(&[from], operation, until, into)?;
        self.endpoint().check(from, header, operation)
    }

    /// Sends `messages[rank]` to every other rank, and fills the rest of `messages` with theirs.
    /// One phase; with messages of `b` bytes, `(n − 1)·b` bytes each way.
    fn all_gather_v(&mut self, operation: Operation<'_>, messages: &mut [Vec<u8>]) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        self.send_to_others(operation, &messages[rank])?;
        for from in (0..size).filter(|&from| from != rank) {
            self.recv(from, operation, &mut messages[from])?;
        }
        Ok(())
    }

    /// Sends every other rank its message, and takes the messages of the other ranks, whose lengths
    /// are known. Returns when the caller may change the bytes of its messages: a transport may
    /// send them from where they are. One phase; with messages of `b` bytes, `(n − 1)·b` bytes
    /// each way.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv); `Protocol` for a message of another length.
    fn all_to_all(
        &mut self,
        operation: Operation<'_>,
        outgoing: Outgoing<'_>,
        incoming: Incoming<'_>,
    ) -> Result<()> {
        match outgoing {
            Outgoing::Same(message) => self.send_to_others(operation, message)?,
            Outgoing::Each(message) => {
                let mut others = self.endpoint().others();
                others.try_for_each(|to| self.send(to, operation, message(to)))?;
            }
        }
        let (rank, size) = (self.rank(), self.size());
        for from in (0..size).filter(|&from| from != rank) {
            self.recv(from, operation, incoming.memory)?;
            incoming.check(from, incoming.memory.len(), operation)?;
            (incoming.take)(Arrival { from, at: 0, bytes: incoming.memory });
        }
        Ok(())
    }

    /// Sends any number of bytes, such as a state, which may be too long for one message. They go
    /// in parts of 256 MiB; the last part is shorter, perhaps empty.
    fn send_in_parts(&mut self, to: usize, operation: Operation<'_>, bytes: &[u8]) -> Result<()> {
        parts(bytes, PART).try_for_each(|part| self.send(to, operation, part))
    }

    /// Receives the other parts of a message whose first part is in `into`, and appends them. The
    /// message was [sent in parts](Self::send_in_parts); the deadline is for each part.
    fn recv_rest(
        &mut self,
        from: usize,
        operation: Operation<'_>,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        recv_rest(self, from, operation, PART, into)
    }

    /// Gives every rank the `message` of rank `root`, which [sends it in
    /// parts](Self::send_in_parts) `n − 1` times.
    fn broadcast(
        &mut self,
        root: usize,
        operation: Operation<'_>,
        message: &mut Vec<u8>,
    ) -> Result<()> {
        if self.rank() != root {
            self.recv(root, operation, message)?;
            return self.recv_rest(root, operation, message);
        }
        // A part has left before the next is sent: a transport may keep a copy for each receiver.
        parts(message, PART).try_for_each(|part| {
            self.send_to_others(operation, part)?;
            self.flush()
        })
    }

    /// Returns once every rank has called it. Empty messages to rank 0 and back.
    fn barrier(&mut self) -> Result<()> {
        let operation = Operation::whole(Phase::Barrier, 0);
        let mut nothing = Vec::new();
        if self.rank() == 0 {
            for from in 1..self.size() {
                self.recv(from, operation, &mut nothing)?;
            }
        } else {
            self.send(0, operation, &[])?;
        }
        self.broadcast(0, operation, &mut nothing)
    }
}

/// The bytes of a part, except the last.
pub(crate) const PART: usize = 1 << 28;

/// Cuts bytes into parts of `most`, and a last one that is shorter.
pub(crate) fn parts(bytes: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    (0..=bytes.len() / most).map(move |at| &bytes[at * most..bytes.len().min((at + 1) * most)])
}

/// [`Transport::recv_rest`], with parts of `most` bytes.
fn recv_rest<T: Transport + ?Sized>(
    transport: &mut T,
    from: usize,
    operation: Operation<'_>,
    most: usize,
    into: &mut Vec<u8>,
) -> Result<()> {
    let (mut part, mut length) = (Vec::new(), into.len());
    while length == most {
        transport.recv(from, operation, &mut part)?;
        length = part.len();
        into.extend_from_slice(&part);
    }
    Ok(())
}

/// Returns `result`; an error aborts the run on all ranks.
pub(crate) fn or_abort<R>(transport: &mut dyn Transport, result: Result<R>) -> Result<R> {
    if let Err(error) = &result {
        let own = transport.rank();
        transport.abort(error.culprit(own));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_at_another_step_is_told_apart_from_one_that_does_something_else() {
        let gather = |step| Operation::whole(Phase::Gather, step);
        for (sent, awaited, says) in [
            (gather(13), gather(10), "while this rank is at step 10; all ranks must take the same"),
            (Operation::whole(Phase::Check, 10), gather(10), "same operations in the same order"),
            (
                Operation::whole(Phase::Broadcast, 0),
                gather(10),
                "same operations in the same order",
            ),
        ] {
            let mut ranks = in_process::connect(2, in_process::Options::default());
            ranks[1].send(0, sent, b"message").unwrap();
            let error = ranks[0].recv(1, awaited, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn parts_are_joined_and_the_next_message_is_left() {
        let operation = Operation::whole(Phase::Report, 0);
        let mut ranks = in_process::connect(2, in_process::Options::default());
        let (mut to, mut from) = (ranks.remove(1), ranks.remove(0));
        for (length, messages) in [(0, 1), (9, 1), (10, 2), (25, 3), (30, 4)] {
            let bytes: Vec<u8> = (0..length).collect();
            assert_eq!(parts(&bytes, 10).count(), messages);
            parts(&bytes, 10).for_each(|part| from.send(1, operation, part).unwrap());
            from.send(1, operation, b"next").unwrap();
            let mut found = Vec::new();
            to.recv(0, operation, &mut found).unwrap();
            recv_rest(&mut to, 0, operation, 10, &mut found).unwrap();
            assert_eq!(found, bytes);
            to.recv(0, operation, &mut found).unwrap();
            assert_eq!(found, b"next");
        }
    }
}
