//! Decodes the parts of an update.

use std::ops::Range;

use gradwire_bits::DecodeError;

use crate::hasher::TensorHasher;
use crate::part::Content;
use crate::pieces::{Pieces, Slot};
use crate::plan::{Plan, Task};
use crate::record::check;
use crate::update::{Arena, Elements, Placed};
use crate::workers::{Worker, Workers, run};
use crate::{Buffer, ElementType, Error, Source, StateHash};

/// Decodes the parts of a plan with all workers, each into an arena of its own, and proves each
/// record. Returns the decoded parts in order; those of new tensors are in `pieces`.
///
/// # Errors
/// Records that are damaged, or are of other weights; errors of the base.
pub(crate) fn decode(
    plan: &Plan<'_>,
    base: &dyn Source,
    pieces: &mut Pieces,
    arenas: &mut [Arena],
    workers: &mut Workers,
) -> Result<Vec<Decoded>, Error> {
    let Plan { tasks, records, places } = plan;
    let names = records.iter().flat_map(|record| std::iter::repeat_n(&*record.name, record.tasks));
    let tasks: Vec<(&Task<'_>, &str)> = tasks.iter().zip(names).collect();
    let shared = Shared { base, slots: pieces.slots(places) };
    let arenas = arenas.iter_mut().zip(&mut workers.all).enumerate();
    let mut decoders: Vec<Decoder<'_>> = arenas
        .map(|(arena_number, (arena, worker))| Decoder { arena_number, arena, worker })
        .collect();
    let decoded = run(&mut decoders, &tasks, |decoder, (task, name)| {
        decoder.decode(&shared, task).map_err(|error| match error {
            Error::DamagedPart(source) => Error::DamagedTensor { name: (*name).to_owned(), source },
            other => other,
        })
    })?;
    let mut parts = decoded.iter();
    for record in records {
        let change = parts.by_ref().take(record.tasks).map(|part| part.change).sum();
        if check(change) != record.check {
            return Err(Error::WrongChange { name: record.name.clone() });
        }
        if let Some(piece) = record.piece {
            pieces.add_hash(piece, change);
        }
    }
    Ok(decoded)
}

/// What a thread works with.
#[derive(Debug)]
struct Decoder<'a> {
    /// The number of the arena.
    arena_number: usize,
    arena: &'a mut Arena,
    worker: &'a mut Worker,
}

/// A decoded part.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// What the hash gains.
    change: StateHash,
    /// The changes of tensors of the base; none of new tensors.
    pub(crate) patches: Vec<Placed>,
}

/// What all threads read, and the slots that they write.
struct Shared<'a> {
    base: &'a dyn Source,
    slots: Vec<Slot<'a>>,
}

impl Decoder<'_> {
    /// Decodes the part into the arena, or to its slot.
    fn decode(&mut self, shared: &Shared<'_>, task: &Task<'_>) -> Result<Decoded, Error> {
        match task {
            Task::Part { elements, bytes } => self.part(shared.base, elements, bytes),
            Task::Pool { element, tensors, bytes } => {
                self.pool(shared.base, *element, tensors, bytes)
            }
            Task::Written { place, bytes } => self.written(&shared.slots[*place], bytes),
        }
    }

    fn part(
        &mut self,
        source: &dyn Source,
        elements: &Elements,
        bytes: &[u8],
    ) -> Result<Decoded, Error> {
        let tensor = &source.tensors()[elements.tensor];
        let Worker { coder, base, .. } = &mut *self.worker;
        let base = read(source, elements, base)?;
        let content = coder.decode(tensor.element(), elements.len, Some(base), bytes);
        let content = content.map_err(Error::DamagedPart)?;
        let hasher = TensorHasher::new(tensor);
        let mut place = Placement { arena: &mut *self.arena, number: self.arena_number };
        Ok(Decoded::of(place.put(elements, &hasher, base, &content)))
    }

    fn pool(
        &mut self,
        source: &dyn Source,
        element: ElementType,
        tensors: &[Elements],
        bytes: &[u8],
    ) -> Result<Decoded, Error> {
        let width = element.width();
        let Worker { coder, base: pool, new: buffer, .. } = &mut *self.worker;
        pool.clear();
        for elements in tensors {
            pool.extend(read(source, elements, buffer)?);
        }
        let content = coder.decode(element, pool.len() / width, Some(pool), bytes);
        let content = content.map_err(Error::DamagedPart)?;
        let mut place = Placement { arena: &mut *self.arena, number: self.arena_number };
        let mut decoded = Decoded::default();
        let mut start = 0;
        let mut moved = Vec::new();
        for elements in tensors {
            let end = start + elements.len;
            let hasher = TensorHasher::new(&source.tensors()[elements.tensor]);
            let base = &pool[start * width..end * width];
            let content = piece(&content, start..end, width, &mut moved);
            let more = Decoded::of(place.put(elements, &hasher, base, &content));
            decoded.change += more.change;
            decoded.patches.extend(more.patches);
            start = end;
        }
        Ok(decoded)
    }

    fn written(&mut self, slot: &Slot<'_>, bytes: &[u8]) -> Result<Decoded, Error> {
        let mut out = slot.bytes.lock().expect("each slot has one task");
        let len = out.len() / slot.element.width();
        let content = self.worker.coder.decode(slot.element, len, None, bytes);
        match content.map_err(Error::DamagedPart)? {
            Content::Whole(new) => out.copy_from_slice(new),
            _ => {
                let reason = DecodeError::Corrupt("a new tensor has a part with a base");
                return Err(Error::DamagedPart(reason));
            }
        }
        let change = slot.hasher.content(slot.first, &out);
        Ok(Decoded { change, patches: Vec::new() })
    }
}

impl Decoded {
    fn of(patch: Option<Placed>) -> Self {
        let change = patch.as_ref().map(|patch| patch.change).unwrap_or_default();
        Self { change, patches: patch.into_iter().collect() }
    }
}

fn read<'a>(
    source: &'a dyn Source,
    elements: &Elements,
    buffer: &'a mut Buffer,
) -> Result<&'a [u8], Error> {
    let Elements { tensor, first, len } = *elements;
    let width = source.tensors()[tensor].element().width();
    source.read(tensor, first * width..(first + len) * width, buffer)
}

/// The content of some elements of a part. `moved` is working memory.
fn piece<'a>(
    content: &Content<'a>,
    elements: Range<usize>,
    width: usize,
    moved: &'a mut Vec<u32>,
) -> Content<'a> {
    match *content {
        Content::Same => Content::Same,
        Content::Whole(new) => Content::Whole(&new[elements.start * width..elements.end * width]),
        Content::Changes { positions, values } => {
            let at = |end: usize| positions.partition_point(|&position| (position as usize) < end);
            let chosen = at(elements.start)..at(elements.end);
            if chosen.is_empty() {
                return Content::Same;
            }
            moved.clear();
            let start = elements.start as u32;
            moved.extend(positions[chosen.clone()].iter().map(|position| position - start));
            let values = &values[chosen.start * width..chosen.end * width];
            Content::Changes { positions: moved, values }
        }
    }
}

/// Where decoded content is kept.
struct Placement<'a> {
    arena: &'a mut Arena,
    number: usize,
}

impl Placement<'_> {
    /// Copies content to the arena; `None` if nothing changes.
    fn put(
        &mut self,
        elements: &Elements,
        hasher: &TensorHasher,
        base: &[u8],
        content: &Content<'_>,
    ) -> Option<Placed> {
        let (change, positions, new) = match *content {
            Content::Same => return None,
            Content::Changes { positions, values } => {
                let start = self.arena.positions.len();
                self.arena.positions.extend_from_slice(positions);
                let change = hasher.change(elements.first, base, positions, values);
                (change, Some(start..self.arena.positions.len()), values)
            }
            Content::Whole(new) => {
                let hash = |bytes| hasher.content(elements.first, bytes);
                (hash(new) - hash(base), None, new)
            }
        };
        self.arena.bytes.align();
        let start = self.arena.bytes.len();
        self.arena.bytes.extend(new);
        let bytes = start..self.arena.bytes.len();
        Some(Placed { elements: *elements, change, arena: self.number, positions, bytes })
    }
}
