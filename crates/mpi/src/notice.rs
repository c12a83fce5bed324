//! Notices between transports, apart from the messages of exchanges.

use std::time::Instant;

use gradwire_exchange::patience::GRACE;

use crate::call::{Arrival, Fault};
use crate::pause::Pause;

/// Bytes of a notice: its kind, and a number, little-endian.
const BYTES: usize = 9;

/// A notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The sender has left, and has sent this number of messages to the receiver.
    Left(u64),
    /// The run must stop because of an error of this rank.
    Abort(u64),
    /// The sender has waited for this rank for most of the deadline; [`NOBODY`]: it does not wait
    /// any more.
    Waits(u64),
    /// The sender is left after the loss of a rank.
    Here,
}

/// Stands for no rank.
pub(crate) const NOBODY: u64 = u64::MAX;

impl Notice {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let (kind, number) = match self {
            Notice::Left(messages) => (0, messages),
            Notice::Abort(culprit) => (1, culprit),
            Notice::Waits(peer) => (2, peer),
            Notice::Here => (3, 0),
        };
        let mut bytes = vec![kind];
        bytes.extend(u64::to_le_bytes(number));
        bytes
    }

    /// Receives a notice that has arrived; `None` for other bytes, or if the sender died meanwhile.
    pub(crate) fn receive(arrival: Arrival) -> Result<Option<Self>, Fault> {
        let fits = arrival.length == BYTES;
        let mut transfer = arrival.receive(Vec::new())?;
        // A message this short arrives at once.
        let (mut pause, until) = (Pause::default(), Instant::now() + GRACE);
        while !transfer.is_done()? {
            if Instant::now() >= until {
                return Ok(None);
            }
            pause.wait();
        }
        Ok(Self::from_bytes(&transfer.into_bytes()).filter(|_| fits))
    }

    /// Reads a notice; `None` for other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, number) = bytes.split_first()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        match kind {
            0 => Some(Notice::Left(number)),
            1 => Some(Notice::Abort(number)),
            2 => Some(Notice::Waits(number)),
            3 => Some(Notice::Here),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_these_nine_bytes_and_nothing_else_is() {
        let left = Notice::Left(0x0102);
        assert_eq!(left.to_bytes(), [0, 2, 1, 0, 0, 0, 0, 0, 0]);
        for notice in [left, Notice::Abort(3), Notice::Waits(NOBODY), Notice::Here] {
            let bytes = notice.to_bytes();
            assert_eq!(Notice::from_bytes(&bytes), Some(notice));
            assert_eq!(Notice::from_bytes(&bytes[..8]), None);
        }
        assert_eq!(Notice::from_bytes(&[4, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Notice::from_bytes(&[]), None);
    }
}
