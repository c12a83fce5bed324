//! Tensors that this process owns.

use std::ops::Range;

use crate::source::{MOST_READ, check_len, order_of};
use crate::{Buffer, Error, Source, Tensor, Tensors};

/// Named tensors in main memory: the snapshot of a sender, or the weights of a receiver that has
/// none of its own.
#[derive(Debug, Clone, Default)]
pub struct Mirror {
    tensors: Vec<Tensor>,
    buffers: Vec<Buffer>,
}

impl Mirror {
    /// Takes tensors and their little-endian bytes, in any order.
    ///
    /// # Errors
    /// If a tensor occurs twice, or has another number of bytes than its shape says.
    pub fn new(tensors: impl IntoIterator<Item = (Tensor, Buffer)>) -> Result<Self, Error> {
        let mut pairs: Vec<_> = tensors.into_iter().collect();
        pairs.iter().try_for_each(|(tensor, buffer)| check_len(tensor, buffer.len()))?;
        pairs.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        let (tensors, buffers): (Vec<Tensor>, _) = pairs.into_iter().unzip();
        order_of(&tensors)?;
        Ok(Self { tensors, buffers })
    }

    /// Copies all tensors of a source.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn copy_of(source: &dyn Source) -> Result<Self, Error> {
        let mut scratch = Buffer::default();
        let copy = |(index, tensor): (usize, &Tensor)| {
            let mut buffer = Buffer::zeros(tensor.byte_len());
            for start in (0..buffer.len()).step_by(MOST_READ) {
                let range = start..buffer.len().min(start + MOST_READ);
                buffer[range.clone()].copy_from_slice(source.read(index, range, &mut scratch)?);
            }
            Ok(buffer)
        };
        let buffers =
            source.tensors().iter().enumerate().map(copy).collect::<Result<_, Error>>()?;
        Ok(Self { tensors: source.tensors().to_vec(), buffers })
    }

    /// The bytes of the whole tensor, or of the first shard, with this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let index = self.tensors.iter().position(|tensor| tensor.name() == name)?;
        Some(&self.buffers[index])
    }

    /// The bytes of a tensor, by its number in [`Source::tensors`].
    pub(crate) fn bytes(&self, tensor: usize) -> &[u8] {
        &self.buffers[tensor]
    }

    /// All tensors with their bytes, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Tensor, &[u8])> {
        self.tensors.iter().zip(self.buffers.iter().map(|buffer| &**buffer))
    }
}

impl Source for Mirror {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        _: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        Ok(&self.buffers[tensor][bytes])
    }
}

impl Tensors for Mirror {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        Ok(self.buffers.iter_mut().map(|buffer| &mut **buffer).collect())
    }

    fn is_growable(&self) -> bool {
        true
    }

    fn replace(&mut self, removed: &[usize], added: Vec<(Tensor, Buffer)>) {
        let kept = std::mem::take(&mut self.tensors)
            .into_iter()
            .zip(std::mem::take(&mut self.buffers))
            .enumerate()
            .filter(|(index, _)| removed.binary_search(index).is_err())
            .map(|(_, pair)| pair);
        let mut pairs: Vec<_> = kept.chain(added).collect();
        pairs.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        (self.tensors, self.buffers) = pairs.into_iter().unzip();
    }
}
