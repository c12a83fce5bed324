//! Copies of tensors.

use crate::source::MOST_READ;
use crate::{Buffer, Error, Mirror, Source, Tensor};

impl Mirror {
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
            Ok((tensor.clone(), buffer))
        };
        let copies = source.tensors().iter().enumerate().map(copy);
        Self::new(copies.collect::<Result<Vec<_>, Error>>()?)
    }
}
