//! How long ranks wait for each other.
//!
//! A rank waits for another until the deadline of its transport. If the other rank is itself
//! waiting, the first rank waits longer: the other then fails first, and its error names the
//! missing rank.

use std::time::Duration;

/// How long a rank waits for a rank that may itself wait for others: a quarter of the deadline
/// longer for each of its successive `waits`.
pub(crate) fn patience(deadline: Duration, waits: u32) -> Duration {
    deadline * (4 + waits) / 4
}

/// How long a rank of a stopped run waits until its messages have been sent and the other ranks
/// have left.
pub const GRACE: Duration = Duration::from_secs(1);
