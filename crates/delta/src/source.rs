//! Where the bytes of tensors are read: memory of the caller, a [`Mirror`](crate::Mirror), a file.

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

/// A source without tensors: the base of a snapshot.
pub(crate) struct Nothing;

impl Source for Nothing {
    fn tensors(&self) -> &[Tensor] {
        &[]
    }

    fn read<'a>(&'a self, _: usize, _: Range<usize>, _: &'a mut Buffer) -> Result<&'a [u8], Error> {
        Ok(&[])
    }
}

/// Sorts the descriptions of tensors and checks that no two overlap; returns the order.
///
/// # Errors
/// If a tensor, or a row of one, occurs twice, or shards disagree about their tensor.
pub fn order_of(tensors: &[Tensor]) -> Result<Vec<usize>, Error> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by(|&a, &b| tensors[a].key().cmp(&tensors[b].key()));
    for pair in order.windows(2) {
        let [one, next] = [&tensors[pair[0]], &tensors[pair[1]]];
        if one.name() != next.name() {
            continue;
        }
        if !one.has_layout_of(next) {
            let reason = "its shards have different types or shapes";
            return Err(Error::InvalidTensor { name: one.name().to_owned(), reason });
        }
        if one.rows().start == next.rows().start || one.rows().end > next.rows().start {
            return Err(Error::Twice { name: one.name().to_owned() });
        }
    }
    Ok(order)
}

/// The number of a tensor with this name whose rows contain `rows`.
pub(crate) fn find(tensors: &[Tensor], name: &str, rows: &Range<u64>) -> Option<usize> {
    let after = tensors.partition_point(|tensor| tensor.key() <= (name, rows.start));
    let index = after.checked_sub(1)?;
    (tensors[index].name() == name && tensors[index].rows().end >= rows.end).then_some(index)
}

/// Slices of the caller as a [`Source`].
#[derive(Debug, Default)]
pub struct Slices<'a> {
    tensors: Vec<Tensor>,
    bytes: Vec<&'a [u8]>,
}

impl<'a> Slices<'a> {
    /// Takes tensors and their little-endian bytes, in any order.
    ///
    /// # Errors
    /// If a tensor occurs twice, or has another number of bytes than its shape says.
    pub fn new(tensors: impl IntoIterator<Item = (Tensor, &'a [u8])>) -> Result<Self, Error> {
        let (tensors, bytes): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
        tensors
            .iter()
            .zip(&bytes)
            .try_for_each(|(tensor, bytes)| check_len(tensor, bytes.len()))?;
        let order = order_of(&tensors)?;
        let mut tensors: Vec<Option<Tensor>> = tensors.into_iter().map(Some).collect();
        Ok(Self {
            tensors: order.iter().filter_map(|&index| tensors[index].take()).collect(),
            bytes: order.iter().map(|&index| bytes[index]).collect(),
        })
    }
}

impl Source for Slices<'_> {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        _: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        Ok(&self.bytes[tensor][bytes])
    }
}

/// Mutable slices of the caller as [`Tensors`].
#[derive(Debug, Default)]
pub struct SlicesMut<'a> {
    tensors: Vec<Tensor>,
    bytes: Vec<&'a mut [u8]>,
}

impl<'a> SlicesMut<'a> {
    /// As [`Slices::new`].
    ///
    /// # Errors
    /// As for [`Slices::new`].
    pub fn new(tensors: impl IntoIterator<Item = (Tensor, &'a mut [u8])>) -> Result<Self, Error> {
        let mut pairs: Vec<_> = tensors.into_iter().collect();
        pairs.iter().try_for_each(|(tensor, bytes)| check_len(tensor, bytes.len()))?;
        pairs.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        let (tensors, bytes): (Vec<Tensor>, _) = pairs.into_iter().unzip();
        order_of(&tensors)?;
        Ok(Self { tensors, bytes })
    }
}

impl Source for SlicesMut<'_> {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        _: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        Ok(&self.bytes[tensor][bytes])
    }
}

impl Tensors for SlicesMut<'_> {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        Ok(self.bytes.iter_mut().map(|bytes| &mut **bytes).collect())
    }
}

pub(crate) fn check_len(tensor: &Tensor, found: usize) -> Result<(), Error> {
    let expected = tensor.byte_len();
    if expected == found {
        return Ok(());
    }
    Err(Error::Length { name: tensor.name().to_owned(), expected, found })
}
