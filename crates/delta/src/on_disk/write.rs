//! Writing deltas and snapshots of checkpoints on disk.

use crate::diff::{Absent, Diff, DiffOptions};
use crate::safetensors::{Checkpoint, Layout};
use crate::source::Nothing;
use crate::{Error, RunId, Share, Sink, State, Summary, Target, Workers, hashes};

/// Writes the changes from checkpoint `old` to `new`, and the layout of the new files if it differs
/// from that of the old ones. The run is named after the hash of `old`, so the same checkpoints give
/// the same bytes; the versions are 0 and 1.
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
    let state = State::base(hashes(old, workers)?.into_iter().sum());
    let target = Target { run: RunId(state.hash.to_bytes()), version: 1 };
    let options = DiffOptions { portable, absent: Absent::Remove, ..DiffOptions::default() };
    let mut diff = Diff::new(old, &state, target, &options);
    if old.layout() != new.layout() {
        diff.layout(&bytes(new.layout()), sink)?;
    }
    diff.add(old, new, workers, sink)?;
    diff.finish(old, workers, sink)
}

/// Writes all weights of a checkpoint, and the layout of its files: version 0 of a run that is named
/// after their hash.
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
    let mut diff = Diff::snapshot(checkpoint, target, Share::WHOLE);
    diff.layout(&bytes(checkpoint.layout()), sink)?;
    diff.add(&Nothing, checkpoint, workers, sink)?;
    diff.finish(&Nothing, workers, sink)
}

fn bytes(layout: &Layout) -> Vec<u8> {
    let mut bytes = Vec::new();
    layout.write(&mut bytes);
    bytes
}
