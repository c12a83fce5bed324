//! The common part of all transports: the rank, the number of ranks, the deadline and the byte
//! counts.

use std::time::Duration;

use super::{HEADER_BYTES, Header, Operation};
use crate::{ExchangeError, Result, Traffic};

/// One rank of a transport.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// This rank, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// How long this rank waits for another.
    pub deadline: Duration,
    /// Everything sent and received so far.
    pub traffic: Traffic,
}

impl Endpoint {
    /// The longest deadline, 34 years. Longer ones, such as [`Duration::MAX`], are limited to it,
    /// because points in time that lie further ahead cannot be computed.
    pub const LONGEST_DEADLINE: Duration = Duration::from_secs(1 << 30);

    /// A rank that has sent nothing yet.
    pub fn new(rank: usize, size: usize, deadline: Duration) -> Self {
        let deadline = deadline.min(Self::LONGEST_DEADLINE);
        Self { rank, size, deadline, traffic: Traffic::default() }
    }

    /// The other ranks, from the rank after this one on.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        (self.rank + 1..self.size).chain(0..self.rank)
    }

    /// The header of a message of `length` bytes to another rank, over an engine whose messages
    /// have at most `most` bytes.
    ///
    /// # Errors
    /// `Config` for a rank that does not exist, and for a message that is too long.
    pub fn header(
        &self,
        to: usize,
        operation: Operation<'_>,
        length: usize,
        most: usize,
    ) -> Result<Header> {
        let Self { rank, size, .. } = *self;
        if to >= size || to == rank {
            return Err(ExchangeError::config(format!(
                "rank {rank} cannot send to rank {to}; the ranks are 0 to {}",
                size - 1
            )));
        }
        Header::new(operation, length).filter(|_| length <= most).ok_or_else(|| {
            ExchangeError::config(format!(
                "{operation}: {length} bytes are too many for one message, which holds at most {} \
                 GiB; split the tensors, or make the buckets smaller",
                most.div_ceil(1 << 30)
            ))
        })
    }

    /// Refuses a message of another rank, with this header, if it is not that of `operation`.
    ///
    /// # Errors
    /// `Protocol`, with both operations.
    pub fn check(&self, from: usize, header: Header, operation: Operation<'_>) -> Result<()> {
        if header.matches(operation) {
            return Ok(());
        }
        // Operations apart from a step have the number 0.
        let own = operation.step as u32;
        let what = if own != header.step && own != 0 && header.step != 0 {
            format!(
                "{header}, while this rank is at step {own}; all ranks must take the same number of steps"
            )
        } else {
            format!("{header}; the ranks must call the same operations in the same order")
        };
        Err(ExchangeError::protocol(from, operation, what))
    }

    /// Counts a message that was sent, with a payload of `length` bytes.
    pub fn count_sent(&mut self, length: usize) {
        self.traffic.bytes_up += (HEADER_BYTES + length) as u64;
        self.traffic.messages_up += 1;
    }

    /// Counts a message that was received, with a payload of `length` bytes.
    pub fn count_received(&mut self, length: usize) {
        self.traffic.bytes_down += (HEADER_BYTES + length) as u64;
        self.traffic.messages_down += 1;
    }
}
