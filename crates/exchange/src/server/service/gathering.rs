//! The part of a request to save or restore that a server has received.

use std::time::Instant;

use crate::Phase;

/// A request to save or restore, which is answered when every worker has made it, between two
/// steps.
pub(super) struct Gathering {
    pub(super) phase: Phase,
    pub(super) step: u64,
    pub(super) since: Instant,
    pub(super) arrived: Vec<bool>,
    /// The bytes of worker 0.
    pub(super) payload: Vec<u8>,
}
