//! The elements that one step's messages carried.

use gradwire::Coverage;

/// The elements of a tensor that the messages of one step carried.
#[derive(Debug, Default, Clone)]
pub(crate) struct SentElements {
    /// Whether a message carried all elements.
    all: bool,
    /// The flat positions, increasing; unused if `all` is true.
    positions: Vec<u32>,
    /// Total length of the messages.
    pub(crate) bytes: usize,
}

impl SentElements {
    /// The positions; `None` if all elements were carried.
    pub(crate) fn positions(&self) -> Option<&[u32]> {
        (!self.all).then_some(self.positions.as_slice())
    }

    /// Forgets the messages of the previous step.
    pub(super) fn clear(&mut self) {
        self.exclude_all();
        self.bytes = 0;
    }

    /// Adds a message of `bytes` bytes for the elements from `offset` on, with the positions that
    /// it carries.
    pub(super) fn note(&mut self, offset: usize, sent: Coverage, positions: &[u32], bytes: usize) {
        self.bytes += bytes;
        match sent {
            Coverage::All => self.all = true,
            Coverage::Positions => {
                self.positions.extend(positions.iter().map(|at| at + offset as u32));
            }
        }
    }

    /// Records that the result has all elements, no matter which ones the messages carried.
    pub(super) fn include_all(&mut self) {
        self.all = true;
    }

    /// Records that the messages carried no element; their length stays.
    pub(super) fn exclude_all(&mut self) {
        self.all = false;
        self.positions.clear();
    }
}
