//! Applying deltas to a checkpoint on disk, into a new one.

use std::path::Path;

use super::input::Input;
use super::layout_after::layout_after;
use super::writer::Writer;
use crate::hasher::TensorHasher;
use crate::part::PART;
use crate::safetensors::{Checkpoint, NewCheckpoint};
use crate::visit::visit;
use crate::{Buffer, Error, FrameReader, Source, State, StateHash, Workers};

/// Applies deltas to checkpoint `old`, one after the other, and writes the result to `path`, which
/// appears whole or not at all. A delta whose result the weights are already has no effect. Returns
/// what the weights are then.
///
/// # Errors
/// No deltas; deltas that are damaged, or lead from other weights; files that cannot be read or
/// written; more than `max_bytes` of new tensors in a delta, or than the default, 1 GiB or 1024
/// times the stream.
pub fn patch(
    old: &Checkpoint,
    deltas: &[Input],
    path: &Path,
    max_bytes: Option<u64>,
    workers: &mut Workers,
) -> Result<State, Error> {
    let (result, state) = apply(old, deltas, path, max_bytes, workers)?;
    result.finish()?;
    Ok(state)
}

/// As [`patch`], but the result does not have its name yet.
pub(super) fn apply(
    old: &Checkpoint,
    deltas: &[Input],
    path: &Path,
    max_bytes: Option<u64>,
    workers: &mut Workers,
) -> Result<(NewCheckpoint, State), Error> {
    let (mut result, mut state): (Option<NewCheckpoint>, _) = (None, None);
    for input in deltas {
        let survey = input.survey()?;
        let weights = result.as_ref().map_or(old, NewCheckpoint::weights);
        let layout = layout_after(weights, &survey, max_bytes);
        let layout = layout.map_err(|error| input.error(error))?;
        let is_same = result.is_some() && layout.is_like(weights.layout());
        let next = match is_same {
            true => None,
            false => {
                let next = NewCheckpoint::create(path, &layout)?;
                let hash = copy(weights, &next)?;
                state.get_or_insert(State::base(hash));
                Some(next)
            }
        };
        // The hash proves more than the name of a run, which differs for each pair of files.
        let before = State::base(state.expect("the first delta makes it").hash);
        // Each part is read once, and before it is written: it may be written in place.
        let to = next.as_ref().or(result.as_ref()).expect("the first delta makes it");
        let mut writer = Writer::new(weights, to.weights());
        let reached = FrameReader::new(input.open()?)
            .and_then(|frames| visit(weights, &before, frames, max_bytes, workers, &mut writer));
        state = Some(reached.map_err(|error| input.error(error))?);
        result = next.or(result);
    }
    result.zip(state).ok_or(Error::NoLinks)
}

/// Copies the tensors that both checkpoints have; the hash of all tensors of the first.
fn copy(from: &Checkpoint, to: &NewCheckpoint) -> Result<StateHash, Error> {
    let (mut hash, mut buffer) = (StateHash::default(), Buffer::default());
    for (at, tensor) in from.tensors().iter().enumerate() {
        let hasher = TensorHasher::new(tensor);
        hash += hasher.existence();
        let same = to.weights().find(tensor.name());
        let same = same.filter(|&same| to.weights().tensors()[same] == *tensor);
        let width = tensor.element().width();
        for first in (0..tensor.elements()).step_by(PART) {
            let bytes = first * width..tensor.elements().min(first + PART) * width;
            let bytes = from.read(at, bytes, &mut buffer)?;
            hash += hasher.content(first, bytes);
            if let Some(same) = same {
                to.write(same, (first * width) as u64, bytes)?;
            }
        }
    }
    Ok(hash)
}
