//! The compressors of one end, each made once for all tensors that share its spec.

use std::sync::Arc;

use crate::{Compressor, Error, Spec, Tensor};

/// A compressor and the spec it was made from.
#[derive(Debug)]
pub(crate) struct Codec {
    pub(crate) spec: Spec,
    pub(crate) compressor: Arc<dyn Compressor>,
}

impl Codec {
    /// Refuses a tensor with more elements than the compressor can number.
    pub(crate) fn check_size(&self, tensor: &Tensor) -> Result<(), Error> {
        let limit = self.compressor.max_elements(usize::MAX);
        if tensor.elements() <= limit {
            return Ok(());
        }
        Err(Error::TooLarge {
            tensor: tensor.name().to_owned(),
            elements: tensor.elements(),
            id: self.spec.entry().id,
            limit,
        })
    }
}

/// Refuses a buffer of another length than the tensor's.
pub(crate) fn check_length(tensor: &Tensor, found: usize) -> Result<(), Error> {
    if found == tensor.elements() {
        return Ok(());
    }
    let (tensor, expected) = (tensor.name().to_owned(), tensor.elements());
    Err(Error::WrongLength { tensor, expected, found })
}

/// The distinct compressors of one end. The first serves tensors that have none of their own.
#[derive(Debug)]
pub(crate) struct Codecs(Vec<Codec>);

impl Codecs {
    /// The place of the compressor that serves tensors without an own one.
    pub(crate) const DEFAULT: usize = 0;

    pub(crate) fn new(spec: &Spec) -> Self {
        Self(vec![Codec { spec: spec.clone(), compressor: spec.compressor() }])
    }

    /// The place of the compressor for `spec`, which is made if there is none yet.
    pub(crate) fn place(&mut self, spec: &Spec) -> usize {
        if let Some(at) = self.0.iter().position(|codec| codec.spec == *spec) {
            return at;
        }
        self.0.push(Codec { spec: spec.clone(), compressor: spec.compressor() });
        self.0.len() - 1
    }

    pub(crate) fn get(&self, place: usize) -> &Codec {
        &self.0[place]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Codec> {
        self.0.iter()
    }
}
