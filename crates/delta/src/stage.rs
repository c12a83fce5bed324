//! Decodes and proves an update without changing anything.

use std::io::Read;

use crate::base_check::{check_count, fits, joined, mismatch};
use crate::decode::decode;
use crate::frame::{FrameReader, Header, Kind};
use crate::hashing::hash_of;
use crate::part::is_whole;
use crate::plan::{Plan, Planner, Task, find_twice};
use crate::record::Record;
use crate::update::{Added, Arena, Elements, Info, Update};
use crate::workers::Workers;
use crate::{Error, Source, State, StateHash, Tensor, progress};

/// Bytes of records that a thread takes from a batch, about.
pub(crate) const BATCH: usize = 4 << 20;
/// This many bytes of new elements need no input that justifies them.
const FREE_BYTES: u64 = 1 << 30;
/// More new bytes than this for each byte of the input are refused.
const MOST_RATIO: u64 = 1024;

/// What staging allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageOptions {
    /// The most bytes of new tensors, and of parts of existing ones that change throughout. By
    /// default 1 GiB, or 1024 times the bytes read so far if that is more. Other changes take
    /// memory in proportion to the bytes read.
    pub max_bytes: Option<u64>,
    /// Whether tensors may be added, removed and reshaped.
    pub growable: bool,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self { max_bytes: None, growable: true }
    }
}

/// Decodes an update of the tensors `base`, whose state is `state`, into `update`, whose memory is
/// used again. `inputs` are its stream, or all of its shares in any order.
///
/// The update is proven: `state` is the state that the sender changed, and the result has the hash
/// of the sender's weights. If `state` is the sender's result already, the update
/// [is applied](Update::is_applied). Costs a pass over the changed tensors.
///
/// # Errors
/// If the streams are damaged, truncated, or belong to other weights; if the
/// [progress](crate::Progress) is stopped. The update is empty then.
pub fn stage<R: Read>(
    base: &dyn Source,
    state: &State,
    inputs: Vec<FrameReader<R>>,
    options: &StageOptions,
    workers: &mut Workers,
    update: &mut Update,
) -> Result<(), Error> {
    update.clear();
    let staged = stage_into(base, state, inputs, options, workers, update);
    if staged.is_err() {
        update.clear();
    }
    staged
}

/// As [`stage`], for an empty update, which is unproven after an error.
fn stage_into<R: Read>(
    base: &dyn Source,
    state: &State,
    mut inputs: Vec<FrameReader<R>>,
    options: &StageOptions,
    workers: &mut Workers,
    update: &mut Update,
) -> Result<(), Error> {
    let header = joined(&inputs.iter().map(FrameReader::header).collect::<Vec<_>>())?;
    if !fits(&header, state) {
        let target = read_to_end(&mut inputs)?;
        if let Some(error) = mismatch(&header, target, inputs.len(), state) {
            return Err(error);
        }
        update.info = Some(info(&header, state, target, true));
        return Ok(());
    }
    if !header.named && base.tensors().iter().any(Tensor::is_shard) && header.kind == Kind::Delta {
        return Err(Error::ShardsHere);
    }
    update.arenas.resize_with(workers.threads().max(update.arenas.len()), Arena::default);
    let planner = Planner::new(base);
    let mut staging = Staging { base, header, planner, options, replaced: 0 };
    let mut target = StateHash::default();
    for input in &mut inputs {
        target += staging.read(input, workers, update)?;
    }
    if staging.header.kind == Kind::Snapshot && !staging.planner.pieces.are_like(base.tensors()) {
        check_count(&staging.header, inputs.len())?;
    }
    staging.finish(state, target, workers, update)
}

/// The maximum number of bytes of new elements, given the number of bytes read from the stream.
pub(crate) fn default_limit(read: u64) -> u64 {
    (read * MOST_RATIO).max(FREE_BYTES)
}

/// Reads streams without decoding them; returns the sum of their target hashes.
pub(crate) fn read_to_end<R: Read>(inputs: &mut [FrameReader<R>]) -> Result<StateHash, Error> {
    let mut payload = Vec::new();
    let mut end = |input: &mut FrameReader<R>| {
        let (mut more, mut read) = (true, 0);
        while more {
            more = input.records(&mut payload)?;
            progress::advance(input.bytes_read() - read)?;
            read = input.bytes_read();
        }
        Ok(input.end().expect("the records have been read").target_hash)
    };
    inputs.iter_mut().map(&mut end).sum()
}

fn info(header: &Header, base: &State, target: StateHash, is_applied: bool) -> Info {
    let target = State { run: Some(header.run), version: header.target, hash: target };
    Info { kind: header.kind, base: *base, target, is_applied, is_committed: false }
}

struct Staging<'a> {
    base: &'a dyn Source,
    header: Header,
    planner: Planner<'a>,
    options: &'a StageOptions,
    /// Bytes of parts of the base that have new elements throughout.
    replaced: u64,
}

impl Staging<'_> {
    /// Decodes a stream; returns the hash of its target.
    fn read<R: Read>(
        &mut self,
        input: &mut FrameReader<R>,
        workers: &mut Workers,
        update: &mut Update,
    ) -> Result<StateHash, Error> {
        let mut payloads = std::mem::take(&mut update.payloads);
        let (mut records, mut read) = (0, 0);
        loop {
            let count = fill(input, &mut payloads, BATCH * workers.threads())?;
            let limit = self.options.max_bytes.unwrap_or(default_limit(input.bytes_read()));
            records += self.decode(&payloads[..count], limit, workers, update)?;
            progress::advance(input.bytes_read() - read)?;
            read = input.bytes_read();
            if count == 0 {
                break;
            }
        }
        update.payloads = payloads;
        let end = input.end().expect("the records have been read");
        if end.records != records {
            return Err(Error::Damaged("records are missing"));
        }
        Ok(end.target_hash)
    }

    /// Decodes the records of some frames; returns their number.
    fn decode(
        &mut self,
        payloads: &[Vec<u8>],
        limit: u64,
        workers: &mut Workers,
        update: &mut Update,
    ) -> Result<u64, Error> {
        let (mut plan, mut count) = (Plan::default(), 0);
        for payload in payloads {
            let mut rest = &payload[..];
            while !rest.is_empty() {
                let record = Record::read(&mut rest, self.header.named)?;
                self.planner.add(record, limit, &mut plan)?;
                count += 1;
            }
        }
        self.replaced += plan.tasks.iter().map(|task| self.bytes(task)).sum::<u64>();
        if self.replaced.saturating_add(self.planner.pieces.bytes()) > limit {
            return Err(Error::TooLarge { limit });
        }
        let pieces = &mut self.planner.pieces;
        let decoded = decode(&plan, self.base, pieces, &mut update.arenas, workers)?;
        update.patches.extend(decoded.into_iter().flat_map(|part| part.patches));
        Ok(count)
    }

    /// The bytes of elements that a task takes from a code that may have far fewer bytes.
    fn bytes(&self, task: &Task<'_>) -> u64 {
        let width = |elements: &Elements| self.base.tensors()[elements.tensor].element().width();
        let bytes = |elements: &Elements| (elements.len * width(elements)) as u64;
        match task {
            Task::Part { elements, bytes: code } if is_whole(code) => bytes(elements),
            Task::Pool { tensors, bytes: code, .. } if is_whole(code) => {
                tensors.iter().map(bytes).sum()
            }
            // Others take memory in proportion to their code; new tensors are counted apart.
            _ => 0,
        }
    }

    /// Completes the update, if its result has the hash `target`.
    fn finish(
        self,
        state: &State,
        target: StateHash,
        workers: &mut Workers,
        update: &mut Update,
    ) -> Result<(), Error> {
        let Planner { pieces, mut removed, .. } = self.planner;
        let (base, tensors) = (self.base, self.base.tensors());
        update.patches.sort_by_key(|patch| patch.elements);
        if let Some(tensor) = find_twice(update.patches.iter().map(|patch| patch.elements)) {
            return Err(Error::Twice { name: tensors[tensor].name().to_owned() });
        }
        update.added = pieces.finish()?;
        match self.header.kind {
            Kind::Snapshot => removed = (0..tensors.len()).collect(),
            Kind::Delta => {
                let added = |tensor: &Tensor| {
                    let order = |added: &Added| added.tensor.name().cmp(tensor.name());
                    update.added.binary_search_by(order).is_ok()
                };
                removed.extend((0..tensors.len()).filter(|&index| added(&tensors[index])));
                removed.sort_unstable();
                removed.dedup();
            }
        }
        let mut patched = update.patches.iter().map(|patch| patch.elements.tensor);
        if let Some(tensor) = patched.find(|tensor| removed.binary_search(tensor).is_ok()) {
            return Err(Error::Twice { name: tensors[tensor].name().to_owned() });
        }
        let mut hash = self.header.base_hash;
        if self.header.kind == Kind::Delta {
            for &index in &removed {
                hash -= hash_of(base, index, &mut workers.all[0].base)?;
            }
        }
        hash += update.patches.iter().map(|patch| patch.change).sum();
        hash += update.added.iter().map(|added| added.hash).sum();
        if !self.options.growable {
            check_fixed(tensors, update, &removed)?;
        }
        if hash != target {
            return Err(Error::WrongResult { expected: target, found: hash });
        }
        update.removed = removed;
        update.info = Some(info(&self.header, state, hash, false));
        Ok(())
    }
}

/// Refuses new tensors and removed ones, but not new content of tensors that are there.
fn check_fixed(tensors: &[Tensor], update: &Update, removed: &[usize]) -> Result<(), Error> {
    let refuse = |tensor: &Tensor| Err(Error::FixedTensors { name: tensor.name().to_owned() });
    let old = removed.iter().map(|&index| &tensors[index]);
    let mut pairs = update.added.iter().map(|added| &added.tensor).zip(old);
    if let Some((new, _)) = pairs.find(|(new, old)| new != old) {
        return refuse(new);
    }
    let (new, old) = (update.added.get(removed.len()), removed.get(update.added.len()));
    match (new, old) {
        (Some(new), _) => refuse(&new.tensor),
        (_, Some(&old)) => refuse(&tensors[old]),
        _ => Ok(()),
    }
}

/// Reads frames of records until their bytes are `enough`; returns the number of frames, 0 at the
/// end of the stream.
pub(crate) fn fill<R: Read>(
    input: &mut FrameReader<R>,
    payloads: &mut Vec<Vec<u8>>,
    enough: usize,
) -> Result<usize, Error> {
    let (mut count, mut bytes) = (0, 0);
    while bytes < enough {
        if payloads.len() == count {
            payloads.push(Vec::new());
        }
        if !input.records(&mut payloads[count])? {
            break;
        }
        bytes += payloads[count].len();
        count += 1;
    }
    Ok(count)
}
