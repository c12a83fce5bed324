//! Applying deltas to a checkpoint on disk, in place.

use std::path::Path;

use super::input::Input;
use super::layout_after::layout_after;
use crate::files::disk::{Disk, System};
use crate::part::Content;
use crate::redo::{Log, New, Patch};
use crate::safetensors::Checkpoint;
use crate::survey::Effect;
use crate::update::Elements;
use crate::visit::{Visitor, visit};
use crate::{Error, FrameReader, Source, State, Tensor, Workers, hashes};

/// Applies deltas to the checkpoint at `path`, one after the other. A delta whose result the
/// weights are already has no effect. Returns what the weights are then.
///
/// All new values of a delta are decoded, proven and written to a log beside the weights,
/// `gradwire.redo`, before the first weight changes. If the process is killed, the weights are as
/// before the delta, or the log has all new values, and the next [`Checkpoint::open`] writes them.
/// The log has `4 + w` bytes for each changed weight of `w` bytes. The file `gradwire.lock`, which
/// stays, is locked meanwhile.
///
/// # Errors
/// As for [`patch`](super::patch). Deltas that add, remove or reshape tensors, or change names or
/// headers of files. Files that are links out of their folder; another process that patches.
pub fn patch_in_place(
    path: &Path,
    deltas: &[Input],
    workers: &mut Workers,
) -> Result<State, Error> {
    patch_on(&System, path, deltas, workers)
}

pub(super) fn patch_on(
    disk: &impl Disk,
    path: &Path,
    deltas: &[Input],
    workers: &mut Workers,
) -> Result<State, Error> {
    // From before the hashes are computed until the last delta is applied.
    let (weights, lock) = Checkpoint::open_locked(path)?;
    let mut state = State::base(hashes(&weights, workers)?.into_iter().sum());
    for input in deltas {
        let survey = input.survey()?;
        let layout = layout_after(&weights, &survey, None);
        let layout = layout.map_err(|error| input.error(error))?;
        if !layout.is_like(weights.layout()) {
            return Err(input.error(Error::Layout(
                "it changes names, types, shapes or metadata; write the result to another place"
                    .to_owned(),
            )));
        }
        let written = survey.records.iter().find_map(|record| match &record.effect {
            Effect::Written(tensor) => Some(tensor.name().to_owned()),
            _ => None,
        });
        if let Some(name) = written {
            return Err(input.error(Error::FixedTensors { name }));
        }
        let shards = weights.layout().shards.iter();
        let files = shards.map(|shard| (shard.name.as_str(), shard.header.file_len()));
        let log = Log::create(disk, &lock, files)?;
        let mut logger = Logger { weights: &weights, log, positions: Vec::new() };
        state = FrameReader::new(input.open()?)
            .and_then(|frames| {
                visit(&weights, &State::base(state.hash), frames, Some(0), workers, &mut logger)
            })
            .map_err(|error| input.error(error))?;
        logger.log.commit()?;
    }
    Ok(state)
}

/// Writes each part to the log as it is decoded.
struct Logger<'a, 'd, D: Disk> {
    weights: &'a Checkpoint,
    log: Log<'d, D>,
    /// The positions of a part, as the log has them.
    positions: Vec<[u8; 4]>,
}

impl<D: Disk> Visitor for Logger<'_, '_, D> {
    fn changed(&mut self, elements: Elements, content: &Content<'_>) -> Result<(), Error> {
        let width = self.weights.tensors()[elements.tensor].element().width();
        let from = (elements.first * width) as u64;
        let (file, offset) = self.weights.place(elements.tensor, from, elements.len * width);
        let new = match *content {
            Content::Same => return Ok(()),
            Content::Whole(new) => New::Bytes(new),
            Content::Changes { positions, values } => {
                self.positions.clear();
                self.positions.extend(positions.iter().map(|position| position.to_le_bytes()));
                New::Elements { width, positions: &self.positions, values }
            }
        };
        Ok(self.log.add(&Patch { file, offset, new })?)
    }

    fn written(&mut self, tensor: &Tensor, _: usize, _: &[u8]) -> Result<(), Error> {
        Err(Error::FixedTensors { name: tensor.name().to_owned() })
    }
}
