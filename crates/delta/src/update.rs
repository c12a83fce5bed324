//! A staged update: decoded and proven, not yet written.

use std::ops::Range;

use crate::frame::Kind;
use crate::part::{Content, apply};
use crate::source::MOST_READ;
use crate::{Buffer, Error, Source, State, StateHash, Tensor};

/// An update that was decoded and proven against the base and against the sender's result, and that
/// has changed nothing yet. It holds new elements, not differences, so it can be written again
/// if writing fails.
///
/// It takes 4 bytes and one element for each changed element, and the bytes of tensors that are new
/// or of which most elements changed.
///
/// One that was not staged, or for which staging failed, is empty: commit refuses it, and its
/// methods `kind`, `base`, `target`, `is_applied` and `is_committed` panic.
#[derive(Debug, Default)]
pub struct Update {
    pub(crate) info: Option<Info>,
    pub(crate) patches: Vec<Placed>,
    pub(crate) arenas: Vec<Arena>,
    pub(crate) added: Vec<Added>,
    pub(crate) removed: Vec<usize>,
    /// Frames that wait to be decoded: working memory of staging.
    pub(crate) payloads: Vec<Vec<u8>>,
}

/// What an update is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Info {
    pub(crate) kind: Kind,
    pub(crate) base: State,
    pub(crate) target: State,
    pub(crate) is_applied: bool,
    pub(crate) is_committed: bool,
}

/// A new tensor.
#[derive(Debug, Clone)]
pub(crate) struct Added {
    pub(crate) tensor: Tensor,
    pub(crate) buffer: Buffer,
    pub(crate) hash: StateHash,
}

/// Decoded positions and elements, of the parts that one thread decoded.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pub(crate) positions: Vec<u32>,
    pub(crate) bytes: Buffer,
}

/// Consecutive elements of a tensor of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Elements {
    pub(crate) tensor: usize,
    pub(crate) first: usize,
    pub(crate) len: usize,
}

/// Changes of consecutive elements of a tensor, in an arena.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) elements: Elements,
    /// How the hash changes.
    pub(crate) change: StateHash,
    pub(crate) arena: usize,
    /// `None`: all elements are new.
    pub(crate) positions: Option<Range<usize>>,
    pub(crate) bytes: Range<usize>,
}

/// Changes of consecutive elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch<'a> {
    /// The number of the tensor among those of the receiver.
    pub tensor: usize,
    /// The first of the elements.
    pub first: usize,
    /// The number of elements, at most [`PART`](crate::part::PART).
    pub len: usize,
    /// The new elements: all of them, or those at some positions, which count from `first`.
    pub content: Content<'a>,
}

impl Arena {
    /// The content that was put here.
    pub(crate) fn content(&self, placed: &Placed) -> Content<'_> {
        let values = &self.bytes[placed.bytes.clone()];
        match &placed.positions {
            Some(range) => Content::Changes { positions: &self.positions[range.clone()], values },
            None => Content::Whole(values),
        }
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.positions.clear();
        self.bytes.clear();
    }
}

impl Update {
    fn info(&self) -> &Info {
        self.info.as_ref().expect("the update was staged")
    }

    /// Delta or snapshot.
    pub fn kind(&self) -> Kind {
        self.info().kind
    }

    /// The weights for which the update was staged.
    pub fn base(&self) -> State {
        self.info().base
    }

    /// The weights that it gives.
    pub fn target(&self) -> State {
        self.info().target
    }

    /// Whether the weights were those of the target already when the update was staged, so there is
    /// nothing to do.
    pub fn is_applied(&self) -> bool {
        self.info().is_applied
    }

    /// Whether a receiver has committed it. It cannot be committed to other weights then.
    pub fn is_committed(&self) -> bool {
        self.info().is_committed
    }

    /// Notes that a receiver has written it.
    pub(crate) fn set_committed(&mut self) {
        self.info.as_mut().expect("the update was staged").is_committed = true;
    }

    /// The changes of tensors that keep type and shape, in order of tensors and elements.
    pub fn patches(&self) -> impl ExactSizeIterator<Item = Patch<'_>> {
        self.patches.iter().map(|placed| {
            let content = self.arenas[placed.arena].content(placed);
            let Elements { tensor, first, len } = placed.elements;
            Patch { tensor, first, len, content }
        })
    }

    /// New tensors, and those that replace tensors of another type or shape; in a snapshot all.
    /// Read them before a commit to a [`Mirror`](crate::Mirror): it takes the buffers, and leaves
    /// none here.
    pub fn added(&self) -> impl ExactSizeIterator<Item = (&Tensor, &[u8])> {
        self.added.iter().map(|added| (&added.tensor, &*added.buffer))
    }

    /// The numbers of the receiver's tensors that are removed or replaced, in order; in a snapshot
    /// all.
    pub fn removed(&self) -> &[usize] {
        &self.removed
    }

    /// The numbers of the receiver's tensors that have patches, in order.
    pub fn patched(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> =
            self.patches.iter().map(|placed| placed.elements.tensor).collect();
        numbers.dedup();
        numbers
    }

    /// Puts a tensor as it is after the update into `out`, for an engine that takes whole tensors.
    /// `base` is what the update was staged for, and `tensor` the number of a tensor that is
    /// neither removed nor replaced.
    ///
    /// # Errors
    /// If the base cannot be read.
    pub fn read_new(
        &self,
        base: &dyn Source,
        tensor: usize,
        out: &mut Buffer,
    ) -> Result<(), Error> {
        let (element, len) = (base.tensors()[tensor].element(), base.tensors()[tensor].byte_len());
        let mut scratch = Buffer::default();
        out.clear();
        for start in (0..len).step_by(MOST_READ) {
            out.extend(base.read(tensor, start..len.min(start + MOST_READ), &mut scratch)?);
        }
        for patch in self.patches().filter(|patch| patch.tensor == tensor) {
            let range = patch.first * element.width()..(patch.first + patch.len) * element.width();
            apply(element, &patch.content, &mut out[range]);
        }
        Ok(())
    }

    /// The number of elements that the patches write.
    pub fn changed_elements(&self) -> u64 {
        let count = |placed: &Placed| match &placed.positions {
            Some(range) => range.len(),
            None => placed.elements.len,
        };
        self.patches.iter().map(|placed| count(placed) as u64).sum()
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.info = None;
        self.patches.clear();
        self.arenas.iter_mut().for_each(Arena::clear);
        self.added.clear();
        self.removed.clear();
    }
}
