//! Slices of tensors, which the ranks of scatter-reduce and reduce-scatter own.

use std::ops::Range;

use gradwire::Tensor;

use crate::group::{Group, Piece};
use crate::state::slice_name;

/// A tensor, or the part of one between two cuts.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    /// The slice's elements in the tensor.
    pub(super) range: Range<usize>,
    /// The slice as a tensor, whose name is the tensor's name with the range.
    pub(super) tensor: Tensor,
    /// The rank that averages it.
    pub(super) owner: usize,
}

/// A slice of a tensor of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupSlice<'a> {
    /// The place of the tensor in the group.
    pub(super) at: usize,
    /// The place of the tensor in the model.
    pub(super) index: usize,
    pub(super) slice: &'a Slice,
}

impl<'a> GroupSlice<'a> {
    /// The slice as a piece, whose elements are in this range of some values.
    pub(super) fn piece(self, range: Range<usize>) -> Piece<'a> {
        let Self { index, slice, .. } = self;
        Piece { index, tensor: &slice.tensor, offset: slice.range.start, range }
    }
}

/// The slices of a group's tensors, in order. `slices` has the slices of each tensor of the model.
pub(super) fn slices_of<'a>(
    slices: &'a [Vec<Slice>],
    group: &'a Group,
) -> impl Iterator<Item = GroupSlice<'a>> + Clone {
    let tensors = group.indices.iter().enumerate();
    tensors.flat_map(|(at, &index)| {
        slices[index].iter().map(move |slice| GroupSlice { at, index, slice })
    })
}

/// How tensors are cut into slices for their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The whole model, its tensors concatenated, into runs of equal length.
    WholeModel,
    /// Each tensor separately, so its slices do not depend on its group.
    EachTensor,
}

/// The names of the slices of each tensor.
pub(super) fn names(slices: &[Vec<Slice>]) -> Vec<Vec<String>> {
    slices.iter().map(|slices| names_of(slices)).collect()
}

/// The names of the slices of a tensor.
pub(super) fn names_of(slices: &[Slice]) -> Vec<String> {
    slices.iter().map(|slice| slice.tensor.name().to_owned()).collect()
}

/// Cuts a model's elements into `parts` runs of equal length, in order; an empty tensor stays
/// whole.
pub(super) fn cut_model(tensors: &[Tensor], parts: usize) -> Vec<Vec<Slice>> {
    let total: usize = tensors.iter().map(Tensor::elements).sum();
    let border = |part: usize| (total as u128 * part as u128 / parts as u128) as usize;
    let (mut owner, mut offset) = (0, 0);
    let mut cut = |tensor: &Tensor| {
        let (mut slices, mut start) = (Vec::new(), 0);
        loop {
            while owner + 1 < parts && border(owner + 1) <= offset + start {
                owner += 1;
            }
            let end = tensor.elements().min(border(owner + 1) - offset);
            slices.push(Slice::of(tensor, start..end, owner));
            start = end;
            if start == tensor.elements() {
                break;
            }
        }
        offset += tensor.elements();
        slices
    };
    tensors.iter().map(&mut cut).collect()
}

/// The fewest elements of a slice, if each tensor is cut separately.
const SLICE: usize = 4096;

/// Cuts a tensor into `parts` slices of equal length, one for each owner. A small tensor stays
/// whole, and its name determines the owner.
pub(super) fn cut_tensor(tensor: &Tensor, parts: usize) -> Vec<Slice> {
    let elements = tensor.elements();
    if elements < parts * SLICE {
        let owner = (tensor.id() % parts as u64) as usize;
        return vec![Slice::of(tensor, 0..elements, owner)];
    }
    let border = |part: usize| (elements as u128 * part as u128 / parts as u128) as usize;
    let slice = |owner| Slice::of(tensor, border(owner)..border(owner + 1), owner);
    (0..parts).map(slice).collect()
}

/// A model whose tensors are cut into a chunk of whole rows for each rank, as `torch.chunk` does
/// and as FSDP2 of PyTorch shards parameters. The last chunks have fewer rows, or none.
///
/// The chunks of one rank, one tensor after the other, are its shard. In a buffer with the shards
/// of all ranks, chunks with fewer rows are padded to the length of the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shards {
    pub(super) ranks: usize,
}

impl Shards {
    /// The slices of each tensor, one a rank; ranks without rows have none.
    pub(super) fn cut(self, tensors: &[Tensor]) -> Vec<Vec<Slice>> {
        tensors.iter().map(|tensor| self.cut_tensor(tensor)).collect()
    }

    /// The slices of a tensor.
    pub(super) fn cut_tensor(self, tensor: &Tensor) -> Vec<Slice> {
        let (rows, row) = rows_of(tensor);
        let chunk = rows.div_ceil(self.ranks);
        let slice = |owner: usize| {
            let rows = (owner * chunk).min(rows)..((owner + 1) * chunk).min(rows);
            let mut shape = tensor.shape().to_vec();
            shape.iter_mut().take(1).for_each(|first| *first = rows.len());
            Slice::shaped(tensor, rows.start * row..rows.end * row, &shape, owner)
        };
        (0..self.ranks).map(slice).filter(|slice| !slice.range.is_empty()).collect()
    }

    /// Elements of a tensor's chunk, with padding.
    fn padded(self, tensor: &Tensor) -> usize {
        let (rows, row) = rows_of(tensor);
        rows.div_ceil(self.ranks) * row
    }

    /// Elements of the shards of all ranks.
    pub(super) fn values(self, tensors: &[Tensor]) -> usize {
        tensors.iter().map(|tensor| self.padded(tensor)).sum::<usize>() * self.ranks
    }

    /// Calls `see` with the place of each tensor among `tensors` and the range of each of its
    /// chunks, with padding, in a buffer with the shards of all ranks.
    pub(super) fn each_place(self, tensors: &[Tensor], see: &mut dyn FnMut(usize, Range<usize>)) {
        let mut start = 0;
        for _ in 0..self.ranks {
            for (at, tensor) in tensors.iter().enumerate() {
                let end = start + self.padded(tensor);
                see(at, start..end);
                start = end;
            }
        }
    }

    /// The range of a slice in a buffer with the shards of all ranks, given the place of its tensor
    /// among `tensors`.
    pub(super) fn places(
        self,
        tensors: &[Tensor],
    ) -> impl Fn(usize, &Slice) -> Range<usize> + use<> {
        let mut shard = 0;
        let start = |tensor| {
            let start = shard;
            shard += self.padded(tensor);
            start
        };
        let starts: Vec<usize> = tensors.iter().map(start).collect();
        move |at, slice| {
            let start = slice.owner * shard + starts[at];
            start..start + slice.range.len()
        }
    }
}

/// The number of rows of a tensor, and of elements in each.
fn rows_of(tensor: &Tensor) -> (usize, usize) {
    let shape = tensor.shape();
    (shape.first().copied().unwrap_or(1), shape.iter().skip(1).product())
}

impl Slice {
    fn of(tensor: &Tensor, range: Range<usize>, owner: usize) -> Self {
        // The same number of dimensions as the whole: some compressors use it to tell the kind of
        // the layer.
        let mut shape = vec![1; tensor.shape().len()];
        shape.iter_mut().take(1).for_each(|first| *first = range.len());
        Self::shaped(tensor, range, &shape, owner)
    }

    fn shaped(tensor: &Tensor, range: Range<usize>, shape: &[usize], owner: usize) -> Self {
        let sliced = if range.len() == tensor.elements() {
            tensor.clone()
        } else {
            // A slice of a part of a tensor is named after its elements in the whole tensor.
            let (whole, start) = (tensor.whole(), tensor.start());
            Tensor::new(slice_name(whole.name(), &(start + range.start..start + range.end)), shape)
        };
        Self { range, tensor: sliced, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_cut_by_themselves_whatever_their_group() {
        let tensors = [Tensor::new("big", &[100, 100]), Tensor::new("small", &[100])];
        let names = |tensors: &[Tensor]| -> Vec<_> {
            let slices = tensors.iter().flat_map(|tensor| cut_tensor(tensor, 2));
            slices.map(|slice| (slice.tensor.name().to_owned(), slice.owner)).collect()
        };
        let owner = (tensors[1].id() % 2) as usize;
        let big = named(&[("big[0..5000]", 0), ("big[5000..10000]", 1)]);
        assert_eq!(names(&tensors[..1]), big);
        assert_eq!(names(&tensors), [&big[..], &named(&[("small", owner)])].concat());
    }

    fn cuts(sizes: &[usize], parts: usize) -> Vec<(String, usize)> {
        let tensors: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(at, &size)| Tensor::new(format!("t{at}"), &[size]))
            .collect();
        let slices = cut_model(&tensors, parts).into_iter().flatten();
        slices.map(|slice| (slice.tensor.name().to_owned(), slice.owner)).collect()
    }

    #[test]
    fn rows_are_cut_as_torch_chunk_cuts_them() {
        let ranges = |shape: &[usize], parts| -> Vec<_> {
            let slices = Shards { ranks: parts }.cut_tensor(&Tensor::new("w", shape));
            slices.iter().map(|slice| (slice.owner, slice.range.clone())).collect()
        };
        assert_eq!(ranges(&[4, 3], 2), [(0, 0..6), (1, 6..12)]);
        // Chunks of two rows; the last has one, and beyond it there are none.
        assert_eq!(ranges(&[5, 3], 3), [(0, 0..6), (1, 6..12), (2, 12..15)]);
        assert_eq!(ranges(&[2, 1], 3), [(0, 0..1), (1, 1..2)]);
        assert_eq!(ranges(&[5], 4), [(0, 0..2), (1, 2..4), (2, 4..5)]);
        assert_eq!(ranges(&[0, 3], 2), []);
        let slices = Shards { ranks: 2 }.cut_tensor(&Tensor::new("w", &[5, 3, 2]));
        let shapes: Vec<_> =
            slices.iter().map(|slice| (slice.tensor.name(), slice.tensor.shape())).collect();
        assert_eq!(shapes, [("w[0..18]", &[3, 3, 2][..]), ("w[18..30]", &[2, 3, 2][..])]);
    }

    fn named(slices: &[(&str, usize)]) -> Vec<(String, usize)> {
        slices.iter().map(|&(name, owner)| (name.to_owned(), owner)).collect()
    }

    #[test]
    fn slices_of_parts_are_named_after_their_elements_in_the_whole_tensor() {
        let rows = Tensor::new("big", &[100, 100]).part(5000, &[50, 100]);
        let names =
            cut_model(&[rows], 2).into_iter().flatten().map(|slice| slice.tensor.name().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), ["big[5000..7500]", "big[7500..10000]"]);
    }

    #[test]
    fn slices_are_equal_runs_of_the_whole_model() {
        assert_eq!(cuts(&[4, 2], 1), named(&[("t0", 0), ("t1", 0)]));
        assert_eq!(cuts(&[4, 2], 2), named(&[("t0[0..3]", 0), ("t0[3..4]", 1), ("t1", 1)]));
        assert_eq!(
            cuts(&[0, 5, 0, 1], 3),
            named(&[
                ("t0", 0),
                ("t1[0..2]", 0),
                ("t1[2..4]", 1),
                ("t1[4..5]", 2),
                ("t2", 2),
                ("t3", 2)
            ])
        );
        // Fewer elements than ranks: some own nothing.
        assert_eq!(cuts(&[2], 4), named(&[("t0[0..1]", 1), ("t0[1..2]", 3)]));
        assert_eq!(cuts(&[0, 0], 2), named(&[("t0", 1), ("t1", 1)]));
    }
}
