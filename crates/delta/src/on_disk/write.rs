//! Writing deltas and snapshots of checkpoints on disk.

use crate::diff::Diff;
use crate::options::{Absent, DiffOptions};
use crate::safetensors::{Checkpoint, Layout};
use crate::{Error, RunId, Share, Sink, Slices, State, Summary, Target, Workers, hashes};

/// The longest description of files that fits into a record.
const LONGEST_LAYOUT: usize = 100 << 20;

/// Writes the changes from checkpoint `old` to `new`, and the layout of the new files if it differs
/// from that of the old ones. The run is named after the hash of `old`, so the same checkpoints
/// give the same bytes; the versions are 0 and 1.
///
/// # Errors
/// Files that cannot be read; the errors of the sink.
pub fn delta(
    old: &Checkpoint,
    new: &Checkpoint,
    portable: bool,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let base = State::base(hashes(old, workers)?.into_iter().sum());
    let target = Target { run: RunId(base.hash.to_bytes()), version: 1 };
    Pair { old, base, new, target }.write(portable, workers, sink)
}

/// Two checkpoints, and what their weights are.
pub(super) struct Pair<'a> {
    pub(super) old: &'a Checkpoint,
    pub(super) base: State,
    pub(super) new: &'a Checkpoint,
    pub(super) target: Target,
}

impl Pair<'_> {
    /// Writes the changes.
    pub(super) fn write(
        &self,
        portable: bool,
        workers: &mut Workers,
        sink: &mut Sink<'_>,
    ) -> Result<Summary, Error> {
        let Self { old, new, .. } = self;
        let options = DiffOptions { portable, absent: Absent::Remove, ..DiffOptions::default() };
        let mut diff = Diff::new(*old, &self.base, self.target, &options);
        if !old.layout().is_like(new.layout()) {
            diff.layout(&bytes(new.layout())?, sink)?;
        }
        diff.add(*old, *new, workers, sink)?;
        diff.finish(*old, workers, sink)
    }
}

/// Writes all weights of a checkpoint, and the layout of its files: version 0 of a run that is
/// named after their hash.
///
/// # Errors
/// Files that cannot be read; the errors of the sink.
pub fn pack(
    checkpoint: &Checkpoint,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let state = State::base(hashes(checkpoint, workers)?.into_iter().sum());
    let target = Target { run: RunId(state.hash.to_bytes()), version: 0 };
    let (mut diff, none) = (Diff::snapshot(checkpoint, target, Share::WHOLE), Slices::default());
    diff.layout(&bytes(checkpoint.layout())?, sink)?;
    diff.add(&none, checkpoint, workers, sink)?;
    diff.finish(&none, workers, sink)
}

fn bytes(layout: &Layout) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    layout.write(&mut bytes);
    if bytes.len() > LONGEST_LAYOUT {
        return Err(Error::Layout(format!(
            "names and shapes take {} bytes, but a stream has room for {LONGEST_LAYOUT}; use \
             shorter names",
            bytes.len()
        )));
    }
    Ok(bytes)
}
