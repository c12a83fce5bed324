//! A checkpoint on disk from a snapshot.

use std::path::Path;

use super::input::Input;
use super::layout_after::layout_of;
use super::writer::Writer;
use crate::safetensors::NewCheckpoint;
use crate::visit::visit;
use crate::{Error, FrameReader, Slices, State, StateHash, Workers};

/// Writes the weights of a snapshot to `path`, which appears whole or not at all: the files that
/// the snapshot was made of, or one file. Returns what the weights are.
///
/// # Errors
/// A snapshot that is damaged; files that cannot be written; more than `max_bytes` of weights,
/// or than the default, 1 GiB or 1024 times the stream.
pub fn unpack(
    input: &Input,
    path: &Path,
    max_bytes: Option<u64>,
    workers: &mut Workers,
) -> Result<State, Error> {
    let survey = input.survey()?;
    let layout = layout_of(&survey, max_bytes).map_err(|error| input.error(error))?;
    let new = NewCheckpoint::create(path, &layout)?;
    let (none, nothing) = (Slices::default(), State::base(StateHash::default()));
    let mut writer = Writer::new(&none, new.weights());
    let state = FrameReader::new(input.open()?)
        .and_then(|frames| visit(&none, &nothing, frames, max_bytes, workers, &mut writer))
        .map_err(|error| input.error(error))?;
    new.finish()?;
    Ok(state)
}
