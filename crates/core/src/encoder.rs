//! The sending end: a compressor with the residuals it has accumulated, by tensor name.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{
    BLOCK, Compressor, Context, Error, Floats, Memory, Sent, Source, Spec, State, StateError,
    Tensor, Workspace,
};

/// Compresses the tensors of one sender. Residuals belong to tensor names.
#[derive(Debug)]
pub struct Encoder {
    spec: Spec,
    compressor: Arc<dyn Compressor>,
    seed: u64,
    rank: u32,
    residuals: HashMap<String, Vec<f32>>,
    workspace: Workspace,
    scratch: Vec<f32>,
}

impl Encoder {
    /// An encoder without residuals yet.
    pub fn new(spec: &Spec, seed: u64, rank: u32) -> Self {
        Self {
            compressor: spec.compressor(),
            spec: spec.clone(),
            seed,
            rank,
            residuals: HashMap::new(),
            workspace: Workspace::default(),
            scratch: vec![0.0; BLOCK],
        }
    }

    /// The configuration.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Appends the message for `gradient` to `message` and updates the tensor's residual.
    ///
    /// The same (seed, tensor, rank, step, residual, gradient) gives the same bytes. On an error
    /// both residual and message are as they were.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for NaN or infinity in the gradient, or in its sum with the residual;
    /// [`Error::WrongLength`] for a gradient of another length than the tensor's;
    /// [`Error::TooLarge`] for a tensor the compressor cannot take; [`Error::State`] where a
    /// restored residual is of another size.
    pub fn encode(
        &mut self,
        tensor: &Tensor,
        step: u64,
        gradient: Floats<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        let elements = tensor.elements();
        check_size(&self.spec, &*self.compressor, tensor)?;
        if gradient.len() != elements {
            return Err(Error::WrongLength {
                tensor: tensor.name().to_owned(),
                expected: elements,
                found: gradient.len(),
            });
        }
        let residual = match self.spec.memory() {
            Memory::None => None,
            Memory::Residual { .. } => Some(residual(&mut self.residuals, tensor)?),
        };
        let mut source = Source::new(gradient, self.spec.memory(), residual, &mut self.scratch)
            .map_err(|at| Error::non_finite(tensor.name(), at))?;
        message.reserve(self.compressor.max_len(elements));
        let context = Context {
            seed: self.seed,
            tensor: tensor.id(),
            shape: tensor.shape(),
            step,
            rank: self.rank,
        };
        Ok(self.compressor.encode(&mut source, &context, &mut self.workspace, message))
    }

    /// The positions that the last message carried, where it answered [`Sent::Positions`].
    pub fn positions(&self) -> &[u32] {
        &self.workspace.positions
    }

    /// What the messages for a tensor have left out so far; `None` before its first message, or
    /// without error feedback.
    pub fn residual(&self, name: &str) -> Option<&[f32]> {
        self.residuals.get(name).map(Vec::as_slice)
    }

    /// Adds everything a restored encoder needs to `state`, under keys that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        state.set_setting(&format!("{prefix}spec"), self.spec.to_string());
        for (name, residual) in &self.residuals {
            state.set_floats(&format!("{prefix}residual/{name}"), residual.clone());
        }
    }

    /// Takes back what [`save`](Self::save) wrote under the same prefix. After an error the
    /// encoder is as it was. A residual of the wrong size is refused when its tensor is encoded
    /// next: only then is the size known.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        state.expect_setting(&format!("{prefix}spec"), &self.spec.to_string())?;
        let prefix = format!("{prefix}residual/");
        self.residuals = state
            .floats_under(&prefix)
            .map(|(name, residual)| (name.to_owned(), residual.to_vec()))
            .collect();
        Ok(())
    }
}

/// The residual of a tensor, zero before its first message.
fn residual<'a>(
    residuals: &'a mut HashMap<String, Vec<f32>>,
    tensor: &Tensor,
) -> Result<&'a mut [f32], StateError> {
    // Two look-ups, because an entry would clone the name at every step.
    if !residuals.contains_key(tensor.name()) {
        residuals.insert(tensor.name().to_owned(), vec![0.0; tensor.elements()]);
    }
    match residuals.get_mut(tensor.name()) {
        Some(residual) if residual.len() == tensor.elements() => Ok(residual),
        other => Err(StateError::WrongSize {
            entry: format!("residual/{}", tensor.name()),
            found: other.map_or(0, |residual| residual.len()),
            expected: tensor.elements(),
        }),
    }
}

/// Refuses a tensor with more elements than the compressor can number.
pub(crate) fn check_size(
    spec: &Spec,
    compressor: &dyn Compressor,
    tensor: &Tensor,
) -> Result<(), Error> {
    let limit = compressor.max_elements(usize::MAX);
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
