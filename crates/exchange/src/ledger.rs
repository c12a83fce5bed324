//! Bytes, counted where they leave and where they arrive.

use std::ops::{Add, AddAssign, Sub};

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

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            bytes_up: self.bytes_up + other.bytes_up,
            bytes_down: self.bytes_down + other.bytes_down,
            messages_up: self.messages_up + other.messages_up,
            messages_down: self.messages_down + other.messages_down,
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        *self = *self + other;
    }
}

impl Sub for Traffic {
    type Output = Traffic;

    /// What came after an earlier reading of the same counters.
    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            bytes_up: self.bytes_up - earlier.bytes_up,
            bytes_down: self.bytes_down - earlier.bytes_down,
            messages_up: self.messages_up - earlier.messages_up,
            messages_down: self.messages_down - earlier.messages_down,
        }
    }
}
