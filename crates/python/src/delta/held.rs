//! The weights of an end: a copy that it owns, or tensors of the user.

use std::ops::Range;
use std::path::PathBuf;

use gradwire_delta::safetensors::Checkpoint;
use gradwire_delta::{Buffer, Error, Mirror, Progress, Source, Tensor, Tensors};
use pyo3::prelude::*;

use super::memory::{Described, UserTensors, user_tensors};
use crate::errors::Failure;

/// Where base weights come from: a file or folder, or tensors in memory.
#[derive(FromPyObject)]
pub(super) enum Base {
    Tensors(Vec<Described>),
    Path(PathBuf),
}

impl Base {
    /// The weights where they are.
    pub(super) fn source(self) -> Result<Box<dyn Source>, Failure> {
        Ok(match self {
            Self::Tensors(all) => Box::new(user_tensors(all)?),
            Self::Path(path) => Box::new(Checkpoint::open(&path)?),
        })
    }

    /// Copies the weights, which are then to be hashed.
    pub(super) fn copy(self, progress: &Progress) -> Result<Mirror, Failure> {
        let source = self.source()?;
        progress.expect(2 * bytes_of(&*source));
        Ok(Mirror::copy_of(&*source)?)
    }
}

/// The weights of a receiver.
#[derive(Debug)]
pub(super) enum Held {
    Copy(Mirror),
    OfUser(UserTensors),
}

impl Held {
    /// Copies weights from a file or folder, and uses tensors in memory in place.
    pub(super) fn new(base: Base, progress: &Progress) -> Result<Self, Failure> {
        Ok(match base {
            Base::Tensors(all) => Self::OfUser(user_tensors(all)?),
            path => Self::Copy(path.copy(progress)?),
        })
    }
}

impl Source for Held {
    fn tensors(&self) -> &[Tensor] {
        match self {
            Self::Copy(mirror) => mirror.tensors(),
            Self::OfUser(tensors) => tensors.tensors(),
        }
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        match self {
            Self::Copy(mirror) => mirror.read(tensor, bytes, buffer),
            Self::OfUser(tensors) => tensors.read(tensor, bytes, buffer),
        }
    }
}

impl Tensors for Held {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        match self {
            Self::Copy(mirror) => mirror.slices_mut(),
            Self::OfUser(tensors) => tensors.slices_mut(),
        }
    }

    fn is_growable(&self) -> bool {
        matches!(self, Self::Copy(_))
    }

    fn replace(&mut self, removed: &[usize], added: Vec<(Tensor, Buffer)>) {
        match self {
            Self::Copy(mirror) => mirror.replace(removed, added),
            Self::OfUser(_) => unreachable!("tensors of the user are not growable"),
        }
    }
}

/// The bytes of all tensors.
pub(super) fn bytes_of(source: &dyn Source) -> u64 {
    source.tensors().iter().map(|tensor| tensor.byte_len() as u64).sum()
}

/// Copies a tensor, block by block.
pub(super) fn copy(held: &dyn Source, tensor: usize, out: &mut [u8]) -> Result<(), Failure> {
    let mut scratch = gradwire_delta::Buffer::default();
    for (at, block) in out.chunks_mut(1 << 22).enumerate() {
        let start = at << 22;
        block.copy_from_slice(held.read(tensor, start..start + block.len(), &mut scratch)?);
    }
    Ok(())
}
