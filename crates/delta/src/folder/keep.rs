//! How long streams stay in a folder.

/// How many streams a folder keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Receivers that are at most this many versions behind need no snapshot. Older streams are
    /// removed, but none that a snapshot needs that stays. Without snapshots all streams stay.
    pub versions: u64,
    /// A snapshot is due after this many versions; 0: never.
    pub snapshot_every: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { versions: 200, snapshot_every: 50 }
    }
}
