//! Where the bytes of tensors are read and written: in [memory](crate::InMemory), or in files.

use std::ops::Range;

use crate::{Buffer, Error, Tensor};

/// The most bytes that are read from a [`Source`] at once.
pub(crate) const MOST_READ: usize = 8 << 20;

/// Named tensors whose bytes can be read part by part.
pub trait Source: Sync {
    /// The tensors, in strictly ascending order of their names, shards of a tensor in order of
    /// their rows.
    fn tensors(&self) -> &[Tensor];

    /// Some bytes of a tensor, by its number in [`Source::tensors`]; at most 8 MiB at once. The
    /// buffer can hold them if they are not in memory.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], Error>;
}

/// Tensors in memory that an update can be written to.
///
/// The slices must not overlap: a tensor that has two names (tied weights) is given once.
pub trait Tensors: Source {
    /// The bytes of each tensor, in the order of [`Source::tensors`].
    ///
    /// # Errors
    /// If the memory is no longer there. Nothing has been written then.
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error>;

    /// Whether [`Tensors::replace`] works: whether tensors can be added, removed and reshaped.
    fn is_growable(&self) -> bool {
        false
    }

    /// Removes tensors, by their increasing numbers, and adds others, all at once. Called only if
    /// [`Tensors::is_growable`].
    fn replace(&mut self, removed: &[usize], added: Vec<(Tensor, Buffer)>) {
        let _ = (removed, added);
        unreachable!("these tensors cannot be replaced");
    }
}

/// Checks that no two tensors, in the order of their names and rows, overlap.
///
/// # Errors
/// If a tensor, or a row of one, occurs twice, or shards disagree about their tensor.
pub(crate) fn check_apart(tensors: &[Tensor]) -> Result<(), Error> {
    for [one, next] in tensors.array_windows() {
        if one.name() != next.name() {
            continue;
        }
        if !one.has_layout_of(next) {
            let reason = "its shards have different types or shapes; give shards of one tensor";
            return Err(Error::InvalidTensor { name: one.name().to_owned(), reason });
        }
        if one.rows().start == next.rows().start || one.rows().end > next.rows().start {
            return Err(Error::Twice { name: one.name().to_owned() });
        }
    }
    Ok(())
}

/// The number of a tensor with this name whose rows contain `rows`.
pub(crate) fn find(tensors: &[Tensor], name: &str, rows: &Range<u64>) -> Option<usize> {
    let after = tensors.partition_point(|tensor| tensor.key() <= (name, rows.start));
    let index = after.checked_sub(1)?;
    (tensors[index].name() == name && tensors[index].rows().end >= rows.end).then_some(index)
}

/// The bytes of all tensors.
pub(crate) fn bytes_of(source: &dyn Source) -> u64 {
    source.tensors().iter().map(|tensor| tensor.byte_len() as u64).sum()
}

/// Refuses another number of bytes than the description of a tensor says.
pub(crate) fn check_len(tensor: &Tensor, found: usize) -> Result<(), Error> {
    let expected = tensor.byte_len();
    if expected == found {
        return Ok(());
    }
    Err(Error::Length { name: tensor.name().to_owned(), expected, found })
}
