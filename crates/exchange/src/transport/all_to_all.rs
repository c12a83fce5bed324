//! Messages of known lengths from every rank to every rank, which need no memory of their own.

use super::Operation;
use crate::{ExchangeError, Result};

/// The messages of a rank to the other ranks.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "it contains a closure")]
pub enum Outgoing<'a> {
    /// The same message to every rank.
    Same(&'a [u8]),
    /// The message to each rank.
    Each(&'a dyn Fn(usize) -> &'a [u8]),
}

impl<'a> Outgoing<'a> {
    /// The message to a rank.
    pub fn to(self, rank: usize) -> &'a [u8] {
        match self {
            Self::Same(message) => message,
            Self::Each(message) => message(rank),
        }
    }
}

/// What a rank does with the messages of the other ranks.
#[expect(missing_debug_implementations, reason = "it contains closures")]
pub struct Incoming<'a> {
    /// The length of each rank's message.
    pub lengths: &'a dyn Fn(usize) -> usize,
    /// Gets the messages in rank order, each in one piece or in several, from its first byte on. A
    /// piece that is not the last of its message has a multiple of four bytes.
    pub take: &'a mut dyn FnMut(Arrival<'_>),
    /// Working memory for a message.
    pub memory: &'a mut Vec<u8>,
}

/// Bytes of another rank's message.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The sender.
    pub from: usize,
    /// The place of the bytes in the message.
    pub at: usize,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Incoming<'_> {
    /// Refuses a message of another length than expected.
    ///
    /// # Errors
    /// `Protocol`, with both lengths.
    pub fn check(&self, from: usize, length: usize, operation: Operation<'_>) -> Result<()> {
        let expected = (self.lengths)(from);
        if length == expected {
            return Ok(());
        }
        let what = format!("a message of {length} bytes instead of {expected}");
        Err(ExchangeError::protocol(from, operation, what))
    }
}
