//! How a tensor is cut: blocks for the first-level cache, and parts for threads.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;

/// The most elements a block holds: with its scratch copy it fills two thirds of a 48 KiB L1 cache.
pub const BLOCK: usize = 4096;

/// Elements of a short block. While a block is processed, the processor prefetches a few kilobytes
/// of the next one: a larger share of a short block.
pub(crate) const SHORT: usize = 1024;

/// Elements of working memory of a [`Source`](crate::Source): a block of the sum, and one of the
/// gradient.
pub const SCRATCH: usize = 2 * BLOCK;

/// Elements of a part, if its unit allows it. Statistics are summed over parts of this length for
/// any number of threads.
pub(crate) const PART: usize = 16 * BLOCK;

/// The least length of a gradient that is unlikely to be in the caches: 16 MiB.
pub(crate) const LARGE: usize = 1 << 22;

/// The fewest elements of a tensor that threads divide; fewer with the feature `testing`. Starting
/// and ending another thread takes 50 to 130 µs; in that time one thread compresses up to half a
/// million elements.
pub const MIN_DIVIDED: usize = least(1 << 20, 2 * PART);

/// The least work to share: `elements`, or `tested` in tests, so tests need no large tensors.
pub(crate) const fn least(elements: usize, tested: usize) -> usize {
    if cfg!(any(test, feature = "testing")) { tested } else { elements }
}

/// The division of a tensor into parts, one thread's work each. The [`Helpers`](crate::Helpers)
/// choose it.
///
/// A tensor consists of equal lanes (the last may be shorter), usually of one. A part has the same
/// places in each lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// Places of a lane.
    pub(crate) lane: usize,
    len: usize,
}

impl Parts {
    /// One part.
    pub(crate) fn whole(lane: usize) -> Self {
        Self { lane, len: lane.max(1) }
    }

    /// Parts of a tensor of `elements` elements in lanes of `lane` elements. A part has a multiple
    /// of `unit` places; the last one may have fewer.
    pub(crate) fn divided(elements: usize, lane: usize, unit: usize) -> Self {
        let places = PART / elements.div_ceil(lane.max(1)).max(1);
        let len = places.next_multiple_of(BLOCK).next_multiple_of(unit.max(1));
        Self { lane, len: len.min(lane).max(1) }
    }

    /// Places of a lane per part, at least 1; the last part may have fewer.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The places of a lane in each part. An empty tensor has one part.
    pub(crate) fn places(self) -> impl Iterator<Item = Range<usize>> {
        let place = move |start| start..self.lane.min(start + self.len);
        (0..self.lane.max(1)).step_by(self.len).map(place)
    }

    /// Whether there is one part.
    pub(crate) fn is_one(self) -> bool {
        self.len >= self.lane
    }
}

/// Cuts the first `len` elements off a slice.
///
/// # Panics
/// If there are fewer.
pub(crate) fn cut_mut<'a, T>(slice: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    slice.split_off_mut(..len).expect("there are as many")
}

/// The results of threads for parts, such as lists or sums, merged in the order of the parts.
pub(crate) trait PartResult: Any + Debug + Default + Send + Sync {
    /// Resets it to the result for no elements.
    fn reset(&mut self);

    /// Adds the result of the next part.
    fn merge(&mut self, part: &Self);
}

/// Makes a struct a [`PartResult`]: the results of its fields.
macro_rules! part_result {
    ($name:ty { $($field:ident),+ }) => {
        impl $crate::parts::PartResult for $name {
            fn reset(&mut self) {
                $($crate::parts::PartResult::reset(&mut self.$field);)+
            }

            fn merge(&mut self, part: &Self) {
                $($crate::parts::PartResult::merge(&mut self.$field, &part.$field);)+
            }
        }
    };
}
pub(crate) use part_result;

impl<T: Copy + Debug + Send + Sync + 'static> PartResult for Vec<T> {
    fn reset(&mut self) {
        self.clear();
    }

    fn merge(&mut self, part: &Self) {
        self.extend_from_slice(part);
    }
}

impl<A: PartResult, B: PartResult> PartResult for (A, B) {
    fn reset(&mut self) {
        self.0.reset();
        self.1.reset();
    }

    fn merge(&mut self, part: &Self) {
        self.0.merge(&part.0);
        self.1.merge(&part.1);
    }
}

impl PartResult for usize {
    fn reset(&mut self) {
        *self = 0;
    }

    fn merge(&mut self, part: &Self) {
        *self += part;
    }
}
