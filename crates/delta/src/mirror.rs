//! Copies of tensors.

use crate::source::{MOST_READ, bytes_of};
use crate::{Buffer, Error, Mirror, Source, Tensor, progress};

impl Mirror {
    /// Copies all tensors of a source.
    ///
    /// # Errors
    /// If a tensor cannot be read; if the [progress](crate::Progress) is stopped.
    pub fn copy_of(source: &dyn Source) -> Result<Self, Error> {
        progress::expect(bytes_of(source));
        let mut scratch = Buffer::default();
        let copy = |(index, tensor): (usize, &Tensor)| {
            let mut buffer = Buffer::zeros(tensor.byte_len());
            for start in (0..buffer.len()).step_by(MOST_READ) {
                let range = start..buffer.len().min(start + MOST_READ);
                let bytes = source.read(index, range.clone(), &mut scratch)?;
                buffer[range].copy_from_slice(bytes);
                progress::advance(bytes.len() as u64)?;
            }
            Ok((tensor.clone(), buffer))
        };
        let copies = source.tensors().iter().enumerate().map(copy);
        Self::new(copies.collect::<Result<Vec<_>, Error>>()?)
    }
}
