//! Tensors in the memory of the caller or of this process.

use std::ops::{Deref, DerefMut, Range};

use crate::source::{check_apart, check_len};
use crate::{Buffer, Error, Source, Tensor, Tensors};

/// Named tensors with the little-endian bytes of each.
#[derive(Debug, Clone, Default)]
pub struct InMemory<B> {
    tensors: Vec<Tensor>,
    bytes: Vec<B>,
}

/// Tensors of the caller, which are read. By default there are none.
pub type Slices<'a> = InMemory<&'a [u8]>;

/// Tensors of the caller, which updates change in place.
pub type SlicesMut<'a> = InMemory<&'a mut [u8]>;

/// Tensors that this process owns: the weights that a sender keeps, or those of a receiver that has
/// none of its own.
pub type Mirror = InMemory<Buffer>;

impl<B: Deref<Target = [u8]>> InMemory<B> {
    /// Takes tensors and their bytes, in any order.
    ///
    /// # Errors
    /// If a tensor occurs twice, or has another number of bytes than its shape says.
    pub fn new(tensors: impl IntoIterator<Item = (Tensor, B)>) -> Result<Self, Error> {
        let mut pairs: Vec<_> = tensors.into_iter().collect();
        pairs.iter().try_for_each(|(tensor, bytes)| check_len(tensor, bytes.len()))?;
        pairs.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        let (tensors, bytes): (Vec<Tensor>, _) = pairs.into_iter().unzip();
        check_apart(&tensors)?;
        Ok(Self { tensors, bytes })
    }

    /// The bytes of the whole tensor, or of the first shard, with this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let index = self.tensors.iter().position(|tensor| tensor.name() == name)?;
        Some(&self.bytes[index])
    }

    /// The bytes of a tensor, by its number in [`Source::tensors`].
    pub(crate) fn bytes(&self, tensor: usize) -> &[u8] {
        &self.bytes[tensor]
    }

    /// All tensors with their bytes, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Tensor, &[u8])> {
        self.tensors.iter().zip(self.bytes.iter().map(|bytes| &**bytes))
    }
}

impl<B: Deref<Target = [u8]> + Sync> Source for InMemory<B> {
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

/// The memory of a tensor that updates change.
pub trait Memory: DerefMut<Target = [u8]> + Sync + Sized {
    /// Takes the buffer of a new tensor as memory. `None` if the caller owns the memory of all
    /// tensors: then an update cannot add, remove or reshape them.
    fn of(buffer: Buffer) -> Option<Self> {
        let _ = buffer;
        None
    }
}

impl Memory for &mut [u8] {}

impl Memory for Buffer {
    fn of(buffer: Buffer) -> Option<Self> {
        Some(buffer)
    }
}

impl<B: Memory> Tensors for InMemory<B> {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        Ok(self.bytes.iter_mut().map(|bytes| &mut **bytes).collect())
    }

    fn is_growable(&self) -> bool {
        B::of(Buffer::default()).is_some()
    }

    fn replace(&mut self, removed: &[usize], added: Vec<(Tensor, Buffer)>) {
        let kept = std::mem::take(&mut self.tensors)
            .into_iter()
            .zip(std::mem::take(&mut self.bytes))
            .enumerate()
            .filter(|(index, _)| removed.binary_search(index).is_err())
            .map(|(_, pair)| pair);
        let added = added.into_iter().map(|(tensor, buffer)| {
            (tensor, B::of(buffer).expect("tensors are replaced only if they are growable"))
        });
        let mut pairs: Vec<_> = kept.chain(added).collect();
        pairs.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        (self.tensors, self.bytes) = pairs.into_iter().unzip();
    }
}
