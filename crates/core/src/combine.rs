//! What a step goes by where that is not the mean: Agg of the GRACE survey's Algorithm 1.

use std::fmt::Debug;

use crate::Workspace;

/// Makes one gradient of those of all ranks: a median, a trimmed mean.
///
/// For methods that answer [`Compressor::combine`](crate::Compressor::combine). Whoever averages decodes each rank's
/// message by itself and calls this once a tensor: every rank under all-gather, the owner of a slice under
/// scatter-reduce, the server of a tensor. It takes n tensors of memory there, n the number of ranks: under
/// all-gather for all tensors of such a method at once, else for one at a time.
///
/// Where nobody has the single gradients (all-reduce, sparse all-reduce, hierarchies, servers whose workers go at
/// their own pace) an exchange refuses the method.
///
/// Xu et al.: "GRACE: A Compressed Communication Framework for Distributed Machine Learning", section 4.
pub trait Combine: Debug + Send + Sync {
    /// Writes the gradient that the step goes by to `combined`, which has the tensor's length and is zero at first.
    ///
    /// Depends on its arguments alone and gives the same bits on every machine, or replicas drift apart: plain loops,
    /// no fused multiply-add. Under scatter-reduce the tensor is a slice of one; a rule that is not elementwise
    /// differs there. Finite numbers give finite ones. `workspace` holds buffers to use, with anything in them.
    fn combine(&self, gathered: &Gathered<'_>, workspace: &mut Workspace, combined: &mut [f32]);
}

/// What the ranks' messages for a tensor decode to: a row a rank, in the order of ranks.
///
/// Only ranks that take part have one. With backup workers those are the ones that came in time.
#[derive(Debug, Clone, Copy)]
pub struct Gathered<'a> {
    weights: &'a [f32],
    values: &'a [f32],
    elements: usize,
}

impl<'a> Gathered<'a> {
    /// Rows of so many elements one behind the other, as many as there are weights.
    ///
    /// # Panics
    /// If there are not as many values as that takes.
    pub fn new(weights: &'a [f32], values: &'a [f32], elements: usize) -> Self {
        assert_eq!(values.len(), weights.len() * elements, "a row of {elements} for each weight");
        Self { weights, values, elements }
    }

    /// How many ranks take part, at least one in an exchange.
    pub fn ranks(&self) -> usize {
        self.weights.len()
    }

    /// Elements of the tensor.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Each rank's part in the mean, positive; they add up to 1, to rounding. Equal unless the run has shares.
    pub fn weights(&self) -> &'a [f32] {
        self.weights
    }

    /// Each rank's decoded tensor, without its weight.
    pub fn rows(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let Self { values, elements, .. } = *self;
        (0..self.ranks()).map(move |rank| &values[rank * elements..][..elements])
    }

    /// Each rank's value of an element.
    ///
    /// # Panics
    /// If the tensor has no such element.
    pub fn column(&self, element: usize) -> impl Iterator<Item = f32> + use<'a> {
        assert!(element < self.elements, "element {element} of {}", self.elements);
        self.rows().map(move |row| row[element])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ranks_and_columns_are_elements() {
        let gathered = Gathered::new(&[0.25, 0.75], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3);
        assert_eq!((gathered.ranks(), gathered.elements()), (2, 3));
        assert!(gathered.rows().eq([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]));
        assert!(gathered.column(2).eq([3.0, 6.0]));
        let empty = Gathered::new(&[0.5, 0.5], &[], 0);
        assert!(empty.rows().eq([[0.0; 0]; 2]));
    }
}
