//! A checkpoint on disk from a snapshot.

use std::path::Path;

use super::input::Input;
use super::layout_after::layout_of;
use super::writer::Writer;
use crate::safetensors::NewCheckpoint;
use crate::source::Nothing;
use crate::visit::visit;
use crate::{Error, FrameReader, State, StateHash, Workers};

/// Writes the weights of a snapshot to `path`, which appears whole or not at all: the files that
/// the snapshot was made of, or one file. Returns what the weights are.
///
/// # Errors
/// A snapshot that is damaged; files that cannot be written; more than `max_bytes` of weights, if a
/// limit is given.
pub fn unpack(
    input: &Input,
    path: &Path,
    max_bytes: Option<u64>,
    workers: &mut Workers,
) -> Result<State, Error> {
    let survey = input.survey()?;
    let layout = layout_of(&survey).map_err(|error| input.error(error))?;
    let new = NewCheckpoint::create(path, &layout)?;
    let mut writer = Writer::new(&Nothing, new.weights());
    let none = State::base(StateHash::default());
    let state = FrameReader::new(input.open()?)
        .and_then(|frames| visit(&Nothing, &none, frames, max_bytes, workers, &mut writer))
        .map_err(|error| input.error(error))?;
    new.finish()?;
    Ok(state)
}
