//! Decodes and proves an update of weights that are not in memory: each part goes to a visitor as
//! soon as it is decoded, and only the hash of the result says whether the visitor may keep it.

use std::io::Read;

use crate::base_check::{fits, mismatch};
use crate::decode::{Decoded, decode};
use crate::frame::{FrameReader, Header, Kind};
use crate::hashing::hash_of;
use crate::part::Content;
use crate::pieces::Pieces;
use crate::plan::{Plan, Planner, Task, find_twice};
use crate::record::Record;
use crate::stage::{BATCH, default_limit, fill, read_to_end};
use crate::update::{Arena, Elements};
use crate::workers::Workers;
use crate::{Error, Share, Source, State, StateHash, Tensor, progress};

/// Bytes of elements that a thread decodes in a batch, about.
const DECODED: usize = 32 << 20;

/// What takes decoded parts.
pub(crate) trait Visitor {
    /// Elements of the base that change.
    fn changed(&mut self, elements: Elements, content: &Content<'_>) -> Result<(), Error>;
    /// Elements of a new tensor, from `first` on.
    fn written(&mut self, tensor: &Tensor, first: usize, new: &[u8]) -> Result<(), Error>;
}

/// Decodes an update of the tensors `base`, whose state is `state`; returns the state of the
/// result. If `state` is the result already, nothing is visited.
///
/// # Errors
/// If the stream is damaged, truncated, or belongs to other weights; the errors of the visitor; if
/// the [progress](crate::Progress) is stopped.
/// What was visited then does not count.
pub(crate) fn visit<R: Read>(
    base: &dyn Source,
    state: &State,
    mut input: FrameReader<R>,
    max_bytes: Option<u64>,
    workers: &mut Workers,
    visitor: &mut dyn Visitor,
) -> Result<State, Error> {
    let header = input.header().clone();
    if header.share != Share::WHOLE {
        return Err(Error::OneShare { count: header.share.count });
    }
    let (run, version) = (Some(header.run), header.target);
    let reached = |hash| State { run, version, hash };
    if !fits(&header, state) {
        let target = read_to_end(std::slice::from_mut(&mut input))?;
        return mismatch(&header, target, 1, state).map_or(Ok(reached(target)), Err);
    }
    let mut arenas: Vec<Arena> = Vec::new();
    arenas.resize_with(workers.threads(), Arena::default);
    let mut planner = Planner::new(base);
    planner.pieces = Pieces::passing();
    let mut visit = Visit {
        base,
        header,
        planner,
        arenas,
        visitor,
        sum: StateHash::default(),
        seen: Vec::new(),
    };
    let records = visit.read(&mut input, max_bytes, workers)?;
    let end = input.end().expect("the records have been read");
    if end.records != records {
        return Err(Error::Damaged("records are missing"));
    }
    let found = visit.finish(workers)?;
    if found != end.target_hash {
        return Err(Error::WrongResult { expected: end.target_hash, found });
    }
    Ok(reached(found))
}

struct Visit<'a> {
    base: &'a dyn Source,
    header: Header,
    planner: Planner<'a>,
    arenas: Vec<Arena>,
    visitor: &'a mut dyn Visitor,
    /// How the hash of the base's tensors changes.
    sum: StateHash,
    /// What was visited of the base.
    seen: Vec<Elements>,
}

impl Visit<'_> {
    /// Decodes all records; returns their number.
    fn read<R: Read>(
        &mut self,
        input: &mut FrameReader<R>,
        max_bytes: Option<u64>,
        workers: &mut Workers,
    ) -> Result<u64, Error> {
        let (mut payloads, mut records, mut read) = (Vec::new(), 0, 0);
        loop {
            let count = fill(input, &mut payloads, BATCH * workers.threads())?;
            progress::advance(input.bytes_read() - read)?;
            read = input.bytes_read();
            if count == 0 {
                return Ok(records);
            }
            let limit = max_bytes.unwrap_or(default_limit(input.bytes_read()));
            let (mut plan, mut bytes) = (Plan::default(), 0);
            for payload in &payloads[..count] {
                let mut rest = &payload[..];
                while !rest.is_empty() {
                    let record = Record::read(&mut rest, self.header.named)?;
                    let before = plan.tasks.len();
                    self.planner.add(record, limit, &mut plan)?;
                    records += 1;
                    bytes += self.bytes(&plan, before);
                    if bytes >= DECODED * workers.threads() {
                        self.decode(&std::mem::take(&mut plan), workers)?;
                        bytes = 0;
                    }
                }
            }
            self.decode(&plan, workers)?;
        }
    }

    /// The most bytes that the tasks of a plan decode to, from the task `first` on.
    fn bytes(&self, plan: &Plan<'_>, first: usize) -> usize {
        let width = |tensor: usize| self.base.tensors()[tensor].element().width();
        let bytes = |task: &Task<'_>| match task {
            Task::Part { elements, .. } => elements.len * width(elements.tensor),
            Task::Pool { element, tensors, .. } => {
                tensors.iter().map(|elements| elements.len).sum::<usize>() * element.width()
            }
            Task::Written { place, .. } => self.planner.pieces.bytes_at(plan.places[*place]),
        };
        plan.tasks[first..].iter().map(bytes).sum()
    }

    /// Decodes the parts of a plan and passes them on, in order.
    fn decode(&mut self, plan: &Plan<'_>, workers: &mut Workers) -> Result<(), Error> {
        let pieces = &mut self.planner.pieces;
        let decoded = decode(plan, self.base, pieces, &mut self.arenas, workers)?;
        self.pass_changes(&decoded)?;
        for (slot, &place) in plan.places.iter().enumerate() {
            let (tensor, first, bytes) = self.planner.pieces.passed(slot, place);
            self.visitor.written(tensor, first, bytes)?;
        }
        self.arenas.iter_mut().for_each(Arena::clear);
        Ok(())
    }

    fn pass_changes(&mut self, decoded: &[Decoded]) -> Result<(), Error> {
        for placed in decoded.iter().flat_map(|part| &part.patches) {
            self.visitor.changed(placed.elements, &self.arenas[placed.arena].content(placed))?;
            self.seen.push(placed.elements);
            self.sum += placed.change;
        }
        Ok(())
    }

    /// The hash of the result.
    fn finish(mut self, workers: &mut Workers) -> Result<StateHash, Error> {
        let tensors = self.base.tensors();
        let twice = |tensor: usize| Error::Twice { name: tensors[tensor].name().to_owned() };
        self.seen.sort_unstable();
        if let Some(tensor) = find_twice(self.seen.iter().copied()) {
            return Err(twice(tensor));
        }
        let Planner { pieces, mut removed, .. } = self.planner;
        let added = pieces.finish()?;
        let mut hash = self.header.base_hash + self.sum;
        hash += added.iter().map(|added| added.hash).sum();
        if self.header.kind == Kind::Snapshot {
            return Ok(hash);
        }
        let is_added = |index: &usize| {
            let name = tensors[*index].name();
            added.binary_search_by(|added| added.tensor.name().cmp(name)).is_ok()
        };
        removed.extend((0..tensors.len()).filter(is_added));
        removed.sort_unstable();
        removed.dedup();
        for &index in &removed {
            if self.seen.binary_search_by_key(&index, |seen| seen.tensor).is_ok() {
                return Err(twice(index));
            }
            hash -= hash_of(self.base, index, &mut workers.all[0].base)?;
        }
        Ok(hash)
    }
}
