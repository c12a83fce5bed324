//! The coder of parts, with its working memory.

use gradwire_bits::kernels::{CLASSES, Octaves};
use gradwire_bits::planes;

use super::sparse::ClassChanges;
use super::steps::MOST_SHIFT;
use crate::ElementType;

/// What the writer of a part may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Positions are coded without the base: more bytes, but less time, because unchanged elements
    /// of the base are not counted.
    pub portable: bool,
}

/// The content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// The elements are those of the base.
    Same,
    /// Some elements differ from the base.
    Changes {
        /// Places of the changed elements within the part, in increasing order.
        positions: &'a [u32],
        /// The new elements at these places, little-endian, one after another.
        values: &'a [u8],
    },
    /// All elements of the part, little-endian.
    Whole(&'a [u8]),
}

/// Encodes and decodes parts. Keeps its working memory, so in a steady state it allocates nothing:
/// 256 KiB and about 60 bytes for each changed element of a part, and up to four times the bytes of
/// a part if parts are dense.
#[derive(Debug, Default)]
pub struct Coder {
    /// The numbers of elements of each class in each group of 64.
    pub(super) counts: Vec<u64>,
    /// By class, then by rank: a bit that is 1 if the element changed.
    pub(super) marks: Vec<u64>,
    /// The changed elements, in order.
    pub(super) positions: Vec<u32>,
    /// Their old values.
    pub(super) olds: Vec<u64>,
    /// Their new values.
    pub(super) values: Vec<u8>,
    /// Their differences, as zigzag numbers.
    pub(super) moves: Vec<u64>,
    /// Their ranks within their classes.
    pub(super) ranks: Vec<u32>,
    /// By changed element, in order: its place in `changes`.
    pub(super) places: Vec<u32>,
    /// The changed elements by class.
    pub(super) changes: ClassChanges,
    /// The coder of whole parts, and the elements of one.
    pub(super) planes: planes::Coder,
    pub(super) whole: Vec<u8>,
    /// The differences of a block.
    pub(super) block: Vec<u8>,
}

/// Elements that are compared or located at once. Both versions stay in the second-level cache
/// until the changed elements are copied and ranked.
pub(super) const BLOCK: usize = 1 << 14;

/// How elements of a type are divided into octaves; all are in one class. `None` for integers.
pub(super) fn octaves(element: ElementType) -> Option<Octaves> {
    let bits = element.exponent_bits();
    let shift = element.mantissa_bits() + bits.saturating_sub(8);
    (bits > 0).then(|| Octaves { width: element.width(), shift, last: [255; CLASSES - 1] })
}

/// How many octaves elements are below the last one of their class, by octave; at most the bits of
/// a mantissa: below, an update is larger than the element.
pub(super) fn shifts(octaves: &Octaves, mantissa_bits: u32) -> [u8; 256] {
    let classes = octaves.classes();
    let most = mantissa_bits.min(MOST_SHIFT) as u8;
    core::array::from_fn(|octave| match octaves.last.get(usize::from(classes[octave])) {
        Some(&last) if last < 255 => (last - octave as u8).min(most),
        _ => 0,
    })
}
