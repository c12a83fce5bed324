//! Counts of the bytes that a rank sends and receives.

use std::ops::{AddAssign, Sub};

/// Bytes and messages that crossed one rank's transport, headers included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub bytes_up: u64,
    /// Bytes received.
    pub bytes_down: u64,
    /// Messages sent.
    pub messages_up: u64,
    /// Messages received.
    pub messages_down: u64,
}

impl Traffic {
    fn zip(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes_up: combine(self.bytes_up, other.bytes_up),
            bytes_down: combine(self.bytes_down, other.bytes_down),
            messages_up: combine(self.messages_up, other.messages_up),
            messages_down: combine(self.messages_down, other.messages_down),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        *self = self.zip(other, |a, b| a + b);
    }
}

impl Sub for Traffic {
    type Output = Traffic;

    /// The traffic since an earlier reading of the same counters.
    fn sub(self, earlier: Traffic) -> Traffic {
        self.zip(earlier, |now, earlier| now - earlier)
    }
}
