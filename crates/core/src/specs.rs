//! The specs of an encoder or decoder, each stored once for all tensors that share it.

use crate::{Error, Spec, Tensor};

/// Refuses a tensor with more elements than the spec's compressor can number.
pub(crate) fn check_size(spec: &Spec, tensor: &Tensor) -> Result<(), Error> {
    let limit = spec.compressor().max_elements(usize::MAX);
    if tensor.elements() <= limit {
        return Ok(());
    }
    Err(Error::TooLarge {
        tensor: tensor.name().to_owned(),
        elements: tensor.elements(),
        id: spec.entry().id,
        limit,
    })
}

/// Refuses a buffer whose length is not the tensor's.
pub(crate) fn check_length(tensor: &Tensor, found: usize) -> Result<(), Error> {
    if found == tensor.elements() {
        return Ok(());
    }
    let (tensor, expected) = (tensor.name().to_owned(), tensor.elements());
    Err(Error::WrongLength { tensor, expected, found })
}

/// The distinct specs of an encoder or decoder. The first is the default for tensors without an
/// assigned spec.
#[derive(Debug)]
pub(crate) struct Specs(pub(crate) Vec<Spec>);

impl Specs {
    /// The index of the default spec.
    pub(crate) const DEFAULT: usize = 0;

    /// The index of `spec`, which is added if it is new. The spec at `likely` is compared first.
    pub(crate) fn index_of(&mut self, spec: &Spec, likely: usize) -> usize {
        if self.0[likely] == *spec {
            return likely;
        }
        self.0.iter().position(|known| known == spec).unwrap_or_else(|| {
            self.0.push(spec.clone());
            self.0.len() - 1
        })
    }
}
