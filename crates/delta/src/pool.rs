//! Pools: small tensors of one type, coded together as one part.

use crate::part::PART;
use crate::{Buffer, ElementType, StateHash, Tensor};

/// Small tensors that have changed.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) element: ElementType,
    /// Their numbers in the base.
    pub(crate) tensors: Vec<usize>,
    /// Their old elements, one tensor after another.
    pub(crate) base: Buffer,
    /// Their new elements.
    pub(crate) new: Buffer,
    /// How the hash changes.
    pub(crate) change: StateHash,
}

/// The open pool of each type of element.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    open: Vec<Pool>,
}

impl Pools {
    /// Adds a tensor; returns a pool that is full without it.
    pub(crate) fn add(
        &mut self,
        tensor: &Tensor,
        index: usize,
        base: &[u8],
        new: &[u8],
        change: StateHash,
    ) -> Option<Pool> {
        let element = tensor.element();
        let found = self.open.iter().position(|pool| pool.element == element);
        let full = found
            .filter(|&found| self.open[found].new.len() + new.len() > PART * element.width())
            .map(|found| self.open.remove(found));
        let open = match found {
            Some(found) if full.is_none() => &mut self.open[found],
            _ => {
                self.open.push(Pool {
                    element,
                    tensors: Vec::new(),
                    base: Buffer::default(),
                    new: Buffer::default(),
                    change: StateHash::default(),
                });
                self.open.last_mut().expect("it was pushed")
            }
        };
        open.tensors.push(index);
        open.base.extend(base);
        open.new.extend(new);
        open.change += change;
        full
    }

    /// All open pools.
    pub(crate) fn take(&mut self) -> Vec<Pool> {
        std::mem::take(&mut self.open)
    }
}
