//! How streams are written, and what was written.

use crate::frame::Share;
use crate::{RunId, State};

/// What becomes of tensors of the base that are not among the new ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Absent {
    /// It is an error.
    #[default]
    Refuse,
    /// They are unchanged.
    Keep,
    /// They are removed.
    Remove,
}

/// How a delta is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffOptions {
    /// Positions are coded without the base: more bytes, but they are found without reading all of
    /// the base, so staging takes about half of the time or less.
    pub portable: bool,
    /// What becomes of tensors of the base that are not among the new ones.
    pub absent: Absent,
    /// Which of the streams of an update this is, if several ranks hold shards.
    pub share: Share,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self { portable: false, absent: Absent::Refuse, share: Share::WHOLE }
    }
}

/// The name of the weights that a stream gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The run of the trainer.
    pub run: RunId,
    /// The version.
    pub version: u64,
}

/// The weights that a delta leads from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The weights that receivers hold.
    pub base: State,
    /// The name of the new ones.
    pub target: Target,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The weights that the stream gives, of this share alone.
    pub state: State,
    /// The number of records.
    pub records: u64,
    /// The number of bytes.
    pub len: u64,
}
