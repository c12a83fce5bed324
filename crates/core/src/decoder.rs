//! The receiving end: bytes to tensor, with nothing of the sender's state.

use std::sync::Arc;

use crate::encoder::{check_length, check_size};
use crate::{Compressor, Context, Error, Spec, Tensor, Workspace};

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
