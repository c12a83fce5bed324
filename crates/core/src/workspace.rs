//! Buffers that outlive a message, so a steady state allocates nothing.

use std::any::Any;
use std::fmt::Debug;

use gradwire_bits::huffman::Code;
use gradwire_bits::tans;

use crate::parts::{MIN_DIVIDED, Parts, SCRATCH};

/// Buffers that encoding and decoding reuse. Their content is undefined between messages, except
/// [`positions`](Self::positions) after an encoding.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Increasing flat positions of the elements that the message carries. An encoder that returns
    /// [`Coverage::Positions`](crate::Coverage::Positions) leaves them here.
    pub positions: Vec<u32>,
    /// The values at those positions.
    pub values: Vec<f32>,
    /// The symbols of the message, each a number below the size of an alphabet.
    pub symbols: Vec<u16>,
    /// Working memory for coding the symbols.
    pub coder: SymbolCoder,
    /// Random words for one block of elements.
    pub random: Vec<u32>,
    /// The decoded values of a block.
    pub block: Vec<f32>,
    /// Threads that share the work on one large tensor.
    pub helpers: Helpers,
    /// The buffers that only one method, or one memory, uses.
    pub own: OwnBuffers,
}

impl Workspace {
    /// The buffers of the method's own type.
    pub fn own<T: Any + Debug + Default + Send + Sync>(&mut self) -> &mut T {
        self.own.get()
    }
}

/// The buffers of one thread.
#[derive(Debug)]
pub(crate) struct ThreadBuffers {
    pub(crate) workspace: Workspace,
    pub(crate) scratch: Vec<f32>,
}

impl Default for ThreadBuffers {
    fn default() -> Self {
        Self { workspace: Workspace::default(), scratch: vec![0.0; SCRATCH] }
    }
}

/// The other threads that share the work on one large tensor, and the buffers of each; none by
/// default.
#[derive(Debug, Default)]
pub struct Helpers {
    /// The buffers of each thread. Their workspaces have no helpers.
    pub(crate) others: Vec<ThreadBuffers>,
    /// The output of threads for each job, until it is appended to the message.
    pub(crate) lists: Vec<Vec<u8>>,
}

impl Helpers {
    /// The most helpers. Each has buffers from the start, and no machine has as many cores.
    pub(crate) const MOST: usize = 1023;

    pub(crate) fn new(count: usize) -> Self {
        let others = (0..count.min(Self::MOST)).map(|_| ThreadBuffers::default()).collect();
        Self { others, lists: Vec::new() }
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.others.len()
    }

    /// Parts of a tensor of `elements` elements. Every part but the last is a multiple of `unit`
    /// elements. Without helpers, or for a small tensor, there is one part.
    pub(crate) fn parts(&self, elements: usize, unit: usize) -> Parts {
        self.parts_of_lanes(elements, elements, unit)
    }

    /// Parts of a tensor of `elements` elements in lanes of `lane` elements.
    pub(crate) fn parts_of_lanes(&self, elements: usize, lane: usize, unit: usize) -> Parts {
        if self.others.is_empty() || elements < MIN_DIVIDED {
            return Parts::whole(lane);
        }
        Parts::divided(elements, lane, unit)
    }

    /// The workspace and the scratch of each.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = (&mut Workspace, &mut [f32])> {
        let buffers = self.others.iter_mut();
        buffers.map(|ThreadBuffers { workspace, scratch }| (workspace, &mut scratch[..]))
    }
}

/// Working memory for entropy codes.
#[derive(Debug, Default)]
pub struct SymbolCoder {
    /// How often each symbol occurs.
    pub counts: Vec<u32>,
    /// The Huffman code.
    pub code: Code,
    /// The code for alphabets with very frequent symbols.
    pub tans: tans::Code,
    /// The values of [groups](tans::groups) of symbols.
    pub groups: Vec<u16>,
    /// How often each value of a group occurs.
    pub group_counts: Vec<u32>,
    /// 1 for each symbol of a list that is not its most frequent one, otherwise 0.
    pub marks: Vec<u16>,
    /// The symbols of a list without its most frequent symbol, then the symbols of this list
    /// without its most frequent one, and so on.
    pub others: Vec<u16>,
    /// How often each symbol occurs in the remaining list.
    pub left: Vec<u32>,
}

/// One value of each requested type.
#[derive(Debug, Default)]
pub struct OwnBuffers(Vec<Box<dyn AnyBuffers>>);

impl OwnBuffers {
    /// The value of this type, initially its default. A method declares a private struct with its
    /// buffers, so no other method uses them.
    pub fn get<T: Any + Debug + Default + Send + Sync>(&mut self) -> &mut T {
        let at = self.0.iter().position(|buffers| (**buffers).as_any().is::<T>());
        let at = at.unwrap_or_else(|| {
            self.0.push(Box::new(T::default()));
            self.0.len() - 1
        });
        (*self.0[at]).as_any_mut().downcast_mut().expect("it is of this type")
    }
}

trait AnyBuffers: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Debug + Send + Sync> AnyBuffers for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_without_helpers_or_of_a_small_tensor() {
        assert!(Helpers::default().parts(MIN_DIVIDED, 1).is_one());
        assert!(Helpers::default().parts(0, 1).places().eq(std::iter::once(0..0)));
        let parts = Helpers::new(2).parts(MIN_DIVIDED - 1, 1);
        assert!(parts.is_one() && parts.len() == MIN_DIVIDED - 1);
        assert!(parts.places().eq(std::iter::once(0..MIN_DIVIDED - 1)));
        assert!(!Helpers::new(2).parts(MIN_DIVIDED, 1).is_one());
        assert_eq!(Helpers::new(usize::MAX).count(), Helpers::MOST);
    }

    #[derive(Debug, Default)]
    struct Counts(Vec<u32>);

    #[derive(Debug, Default)]
    struct Sums(Vec<f32>);

    #[test]
    fn every_type_has_its_own_buffers_which_stay() {
        let mut own = OwnBuffers::default();
        own.get::<Counts>().0.push(7);
        own.get::<Sums>().0.push(0.5);
        assert_eq!(own.get::<Counts>().0, [7]);
        assert_eq!(own.get::<Sums>().0, [0.5]);
    }
}
