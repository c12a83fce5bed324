//! The receiving end: bytes to tensor, with nothing of the sender's state.

use std::sync::Arc;

use crate::encoder::{check_length, check_size};
use crate::{Compressor, Context, Error, Gathered, Spec, Tensor, Workspace, tools};

/// Decodes messages of one configuration.
#[derive(Debug)]
pub struct Decoder {
    spec: Spec,
    compressor: Arc<dyn Compressor>,
    seed: u64,
    workspace: Workspace,
}

impl Decoder {
    /// A decoder for messages of `spec` in a run with `seed`.
    pub fn new(spec: &Spec, seed: u64) -> Self {
        Self {
            spec: spec.clone(),
            compressor: spec.compressor(),
            seed,
            workspace: Workspace::default(),
        }
    }

    /// Adds `weight` times the decoded message of `rank` to `out`.
    ///
    /// On an error `out` is as it was.
    ///
    /// # Errors
    /// [`Error::Message`] for bytes that are no message of this configuration and tensor;
    /// [`Error::WrongLength`] and [`Error::TooLarge`] as for [`Encoder::encode`](crate::Encoder::encode).
    pub fn decode_add(
        &mut self,
        tensor: &Tensor,
        step: u64,
        rank: u32,
        message: &[u8],
        weight: f32,
        out: &mut [f32],
    ) -> Result<(), Error> {
        check_size(&self.spec, &*self.compressor, tensor)?;
        check_length(tensor, out.len())?;
        let context = Context {
            seed: self.seed,
            tensor: tensor.id(),
            shape: tensor.shape(),
            step,
            rank,
            ranks: 1,
        };
        self.compressor
            .decode_add(message, &context, weight, &mut self.workspace, out)
            .map_err(|source| Error::Message { tensor: tensor.name().to_owned(), rank, source })
    }

    /// Makes what a step goes by of what all ranks' messages for a tensor decode to: by [`Compressor::combine`], or
    /// else their weighted mean; then by [`Compressor::aggregate`]. It takes the place of what `out` held.
    ///
    /// # Panics
    /// If the length of `out` is not the tensor's.
    pub fn aggregate(&mut self, gathered: &Gathered<'_>, out: &mut [f32]) {
        assert_eq!(out.len(), gathered.elements());
        match self.compressor.combine() {
            Some(combine) => {
                out.fill(0.0);
                combine.combine(gathered, &mut self.workspace, out);
            }
            None => tools::aggregate(gathered, out),
        }
        self.compressor.aggregate(out);
    }

    /// Decodes messages of `spec` from now on.
    pub fn switch(&mut self, spec: &Spec) {
        self.compressor = spec.compressor();
        self.spec = spec.clone();
    }

    /// The compressor, for its limits and its linearity.
    pub fn compressor(&self) -> &dyn Compressor {
        &*self.compressor
    }
}
