//! Joining deltas of checkpoints on disk.

use std::path::Path;

use super::input::Input;
use super::patch::apply;
use super::write::Pair;
use crate::safetensors::Checkpoint;
use crate::{Error, FrameReader, Sink, State, Summary, Target, Workers, hashes};

/// Writes one delta that leads from checkpoint `old` to where the deltas lead one after another.
/// Patches a copy of the weights, under a temporary name beside `scratch`, and compares. The new
/// tensors of a delta are limited by `max_bytes` as for [`patch`](super::patch).
///
/// # Errors
/// As for [`patch`](super::patch); the errors of the sink.
pub fn fold(
    old: &Checkpoint,
    deltas: &[Input],
    scratch: &Path,
    portable: bool,
    max_bytes: Option<u64>,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let first = deltas.first().ok_or(Error::NoLinks)?;
    let frames = first.open().and_then(FrameReader::new).map_err(|error| first.error(error))?;
    let header = frames.header();
    let (new, reached) = apply(old, deltas, scratch, max_bytes, workers)?;
    let hash = hashes(old, workers)?.into_iter().sum();
    let base = State { run: Some(header.run), version: header.base, hash };
    let target = Target { run: reached.run.unwrap_or(header.run), version: reached.version };
    Pair { old, base, new: new.weights(), target }.write(portable, workers, sink)
}
