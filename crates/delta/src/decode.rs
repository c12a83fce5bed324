//! Decodes one part of an update.

use std::ops::Range;

use gradwire_bits::DecodeError;

use crate::hasher::TensorHasher;
use crate::part::Content;
use crate::pieces::Slot;
use crate::plan::{Rows, Task};
use crate::update::{Arena, Placed};
use crate::workers::Worker;
use crate::{ElementType, Error, Source, StateHash};

/// What a thread works with.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    /// The number of the arena.
    pub(crate) arena_number: usize,
    pub(crate) arena: &'a mut Arena,
    pub(crate) worker: &'a mut Worker,
}

/// A decoded part.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// What the hash gains.
    pub(crate) change: StateHash,
    pub(crate) patches: Vec<Placed>,
}

/// What all threads read, and the slots that they write.
pub(crate) struct Shared<'a> {
    pub(crate) base: &'a dyn Source,
    pub(crate) slots: Vec<Slot<'a>>,
}

impl Decoder<'_> {
    /// Decodes the part into the arena, or to its slot.
    pub(crate) fn decode(
        &mut self,
        shared: &Shared<'_>,
        task: &Task<'_>,
    ) -> Result<Decoded, Error> {
        match task {
            Task::Part { rows, bytes } => self.part(shared.base, rows, bytes),
            Task::Pool { element, tensors, bytes } => {
                self.pool(shared.base, *element, tensors, bytes)
            }
            Task::Written { place, bytes } => self.written(&shared.slots[*place], bytes),
        }
    }

    fn part(&mut self, source: &dyn Source, rows: &Rows, bytes: &[u8]) -> Result<Decoded, Error> {
        let tensor = &source.tensors()[rows.tensor];
        let Worker { coder, base, .. } = &mut *self.worker;
        let base = read(source, rows, base)?;
        let content = coder.decode(tensor.element(), rows.len, Some(base), bytes);
        let content = content.map_err(Error::DamagedPart)?;
        let hasher = TensorHasher::new(tensor);
        let mut place = Placement { arena: &mut *self.arena, number: self.arena_number };
        Ok(Decoded::of(place.put(rows, &hasher, base, &content)))
    }

    fn pool(
        &mut self,
        source: &dyn Source,
        element: ElementType,
        tensors: &[Rows],
        bytes: &[u8],
    ) -> Result<Decoded, Error> {
        let width = element.width();
        let Worker { coder, base: pool, new: buffer, .. } = &mut *self.worker;
        pool.clear();
        for rows in tensors {
            pool.extend(read(source, rows, buffer)?);
        }
        let content = coder.decode(element, pool.len() / width, Some(pool), bytes);
        let content = content.map_err(Error::DamagedPart)?;
        let mut place = Placement { arena: &mut *self.arena, number: self.arena_number };
        let mut decoded = Decoded::default();
        let mut start = 0;
        let mut moved = Vec::new();
        for rows in tensors {
            let end = start + rows.len;
            let hasher = TensorHasher::new(&source.tensors()[rows.tensor]);
            let base = &pool[start * width..end * width];
            let content = piece(&content, start..end, width, &mut moved);
            let more = Decoded::of(place.put(rows, &hasher, base, &content));
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
    rows: &Rows,
    buffer: &'a mut crate::Buffer,
) -> Result<&'a [u8], Error> {
    let width = source.tensors()[rows.tensor].element().width();
    source.read(rows.tensor, rows.first * width..(rows.first + rows.len) * width, buffer)
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
        rows: &Rows,
        hasher: &TensorHasher,
        base: &[u8],
        content: &Content<'_>,
    ) -> Option<Placed> {
        let (change, positions, new) = match *content {
            Content::Same => return None,
            Content::Changes { positions, values } => {
                let start = self.arena.positions.len();
                self.arena.positions.extend_from_slice(positions);
                let change = hasher.change(rows.first, base, positions, values);
                (change, Some(start..self.arena.positions.len()), values)
            }
            Content::Whole(new) => {
                (hasher.content(rows.first, new) - hasher.content(rows.first, base), None, new)
            }
        };
        self.arena.bytes.align();
        let start = self.arena.bytes.len();
        self.arena.bytes.extend(new);
        let bytes = start..self.arena.bytes.len();
        let Rows { tensor, first, len } = *rows;
        Some(Placed { tensor, first, len, change, arena: self.number, positions, bytes })
    }
}
