//! Groups of tensors that are averaged together.

use std::ops::Range;

use gradwire::{Dtype, Tensor};

use crate::Result;
use crate::error::refuse;

/// Tensors that are averaged together. Their values are concatenated.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The tensors by their places in the model.
    pub(crate) indices: Vec<usize>,
    pub(crate) tensors: Vec<Tensor>,
    /// The range of each tensor in the group's values.
    pub(crate) ranges: Vec<Range<usize>>,
    /// The element type of the gradients.
    pub(crate) dtype: Dtype,
}

impl Group {
    pub(crate) fn new(indices: Vec<usize>, model: &[Tensor], dtype: Dtype) -> Self {
        let tensors: Vec<Tensor> = indices.iter().map(|&index| model[index].clone()).collect();
        let mut end = 0;
        let range = |tensor: &Tensor| {
            let start = end;
            end += tensor.elements();
            start..end
        };
        let ranges = tensors.iter().map(range).collect();
        Self { indices, tensors, ranges, dtype }
    }

    /// The tensor at a place in the group.
    pub(crate) fn piece(&self, at: usize) -> Piece<'_> {
        let (index, tensor) = (self.indices[at], &self.tensors[at]);
        Piece { index, tensor, offset: 0, range: self.ranges[at].clone() }
    }

    /// The tensors, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> + Clone {
        (0..self.tensors.len()).map(|at| self.piece(at))
    }

    /// The number of elements of all tensors.
    pub(crate) fn elements(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }
}

/// A tensor of a group, or a slice of one.
#[derive(Debug, Clone)]
pub(crate) struct Piece<'a> {
    /// The place of the tensor in the model.
    pub(crate) index: usize,
    /// The tensor, or the slice as a tensor.
    pub(crate) tensor: &'a Tensor,
    /// The first element in the tensor of the model.
    pub(crate) offset: usize,
    /// The elements in the values of the group.
    pub(crate) range: Range<usize>,
}

impl<'a> Piece<'a> {
    /// A whole tensor alone, number `index` of the model.
    pub(crate) fn whole(index: usize, tensor: &'a Tensor) -> Self {
        Self { index, tensor, offset: 0, range: 0..tensor.elements() }
    }
}

/// Joins consecutive parts of a model into groups of at least `least` bytes of `f32`; the last
/// group may have fewer. A part is never split.
pub fn fuse(parts: &[Vec<usize>], tensors: &[Tensor], least: usize) -> Vec<Vec<usize>> {
    let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        group.extend_from_slice(part);
        bytes += part.iter().map(|&index| 4 * tensors[index].elements()).sum::<usize>();
        if bytes >= least && !group.is_empty() {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
    }
    groups.extend((!group.is_empty()).then_some(group));
    groups
}

/// Refuses groups that do not contain each of a model's `tensors` tensors exactly once.
pub(crate) fn check(groups: &[Vec<usize>], tensors: usize) -> Result<()> {
    let mut all = groups.concat();
    all.sort_unstable();
    if all.into_iter().eq(0..tensors) && !groups.iter().any(Vec::is_empty) {
        return Ok(());
    }
    refuse(format!(
        "groups must not be empty, and must contain each of the model's {tensors} tensors once, \
         but the groups are {groups:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_from_the_first_on() {
        let sizes = [100, 1, 2, 3, 0];
        let tensors: Vec<_> =
            sizes.iter().map(|&size| Tensor::new(format!("t{size}"), &[size])).collect();
        let parts = [vec![3], vec![1, 2], vec![0], vec![4]];
        // 12, 12, 400 and 0 bytes.
        assert_eq!(fuse(&parts, &tensors, 0), [vec![3], vec![1, 2], vec![0], vec![4]]);
        assert_eq!(fuse(&parts, &tensors, 12), [vec![3], vec![1, 2], vec![0], vec![4]]);
        assert_eq!(fuse(&parts, &tensors, 13), [vec![3, 1, 2], vec![0], vec![4]]);
        assert_eq!(fuse(&parts, &tensors, 25), [vec![3, 1, 2, 0], vec![4]]);
        assert_eq!(fuse(&parts, &tensors, 1000), [vec![3, 1, 2, 0, 4]]);
        assert!(fuse(&[], &[], 5).is_empty());
    }

    #[test]
    fn every_tensor_is_in_one_group() {
        assert!(check(&[vec![2, 0], vec![1]], 3).is_ok());
        let empty = vec![vec![0, 1, 2], vec![]];
        for bad in [vec![vec![0, 1]], vec![vec![0, 1], vec![1, 2]], vec![vec![0, 1, 2, 3]], empty] {
            assert!(check(&bad, 3).unwrap_err().to_string().contains("the model's 3 tensors once"));
        }
    }
}
