//! The sending end: a compressor with the residuals it has accumulated, by tensor name.

use std::collections::HashMap;
use std::sync::Arc;

use crate::velocity::{accelerate, clipping};
use crate::{
    Compressor, Context, Error, Floats, Memory, SCRATCH, Sent, Source, Spec, State, StateError,
    Tensor, Workspace,
};

/// Compresses the tensors of one sender. Residuals belong to tensor names.
#[derive(Debug)]
pub struct Encoder {
    spec: Spec,
    compressor: Arc<dyn Compressor>,
    seed: u64,
    rank: u32,
    ranks: u32,
    plain: bool,
    residuals: HashMap<String, Vec<f32>>,
    velocities: HashMap<String, Vec<f32>>,
    workspace: Workspace,
    scratch: Vec<f32>,
    /// What a residual was multiplied by before an encoding that must be taken off it again.
    stash: Vec<f32>,
}

impl Encoder {
    /// An encoder without residuals yet.
    pub fn new(spec: &Spec, seed: u64, rank: u32) -> Self {
        Self {
            compressor: spec.compressor(),
            spec: spec.clone(),
            seed,
            rank,
            ranks: 1,
            plain: false,
            residuals: HashMap::new(),
            velocities: HashMap::new(),
            workspace: Workspace::default(),
            scratch: vec![0.0; SCRATCH],
            stash: Vec::new(),
        }
    }

    /// The same encoder as one of so many ranks; on its own it counts as the only one.
    pub fn with_ranks(mut self, ranks: u32) -> Self {
        self.ranks = ranks.max(1);
        self
    }

    /// The same encoder with the plain residual in place of a memory of the method's own: for what is
    /// no gradient any more, such as the changes a server sends back, where momentum has been.
    pub fn with_plain_memory(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Encodes with `spec` from now on. Residuals and velocities stay.
    pub fn switch(&mut self, spec: &Spec) {
        self.compressor = spec.compressor();
        self.spec = spec.clone();
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
        message.reserve(self.compressor.max_len(elements));
        let fresh = !self.residuals.contains_key(tensor.name());
        let encoded = self.encode_with_memory(tensor, step, gradient, message);
        if fresh && encoded.is_err() {
            self.residuals.remove(tensor.name());
            self.velocities.remove(tensor.name());
        }
        encoded
    }

    fn encode_with_memory(
        &mut self,
        tensor: &Tensor,
        step: u64,
        gradient: Floats<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        let memory = self.memory();
        let non_finite = |at| Error::non_finite(tensor.name(), at);
        let context = Context {
            seed: self.seed,
            tensor: tensor.id(),
            shape: tensor.shape(),
            step,
            rank: self.rank,
            ranks: self.ranks,
        };
        let Self { compressor, residuals, velocities, workspace, scratch, stash, .. } = self;
        match memory {
            Memory::None => {
                let mut source =
                    Source::new(gradient, memory, None, scratch).map_err(non_finite)?;
                Ok(compressor.encode(&mut source, &context, workspace, message))
            }
            Memory::Residual { .. } => {
                let residual = of_tensor(residuals, "residual", tensor)?;
                let mut source =
                    Source::new(gradient, memory, Some(residual), scratch).map_err(non_finite)?;
                Ok(compressor.encode(&mut source, &context, workspace, message))
            }
            Memory::Momentum { momentum, clip } => {
                let residual = of_tensor(residuals, "residual", tensor)?;
                let velocity = of_tensor(velocities, "velocity", tensor)?;
                let factor = match clip {
                    0.0 => 1.0,
                    _ => {
                        let limit = f64::from(clip) / f64::from(context.ranks).sqrt();
                        clipping(gradient, limit, scratch)
                    }
                };
                accelerate(gradient, [momentum, factor], velocity, residual, scratch)
                    .map_err(non_finite)?;
                let sums = Floats::F32(velocity);
                let mut source = Source::new(sums, Memory::RESIDUAL, Some(residual), scratch)
                    .map_err(non_finite)?;
                let sent = compressor.encode(&mut source, &context, workspace, message);
                forget(velocity, sent, &workspace.positions);
                Ok(sent)
            }
            Memory::LongTerm { epsilon, alpha } => {
                let sum = of_tensor(residuals, "residual", tensor)?;
                stash.clear();
                stash.extend(sum.iter().map(|u| alpha * u));
                let weights = Memory::Residual { beta: 1.0 + alpha, gamma: epsilon };
                let mut source =
                    Source::new(gradient, weights, Some(sum), scratch).map_err(non_finite)?;
                let sent = compressor.encode(&mut source, &context, workspace, message);
                sum.iter_mut().zip(&*stash).for_each(|(u, before)| *u -= before);
                forget(sum, sent, &workspace.positions);
                Ok(sent)
            }
        }
    }

    /// The memory: the method's own where it has one.
    fn memory(&self) -> Memory {
        match self.spec.memory() {
            Memory::None => Memory::None,
            plain if self.plain => plain,
            plain => self.compressor.memory().unwrap_or(plain),
        }
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
        for (kind, entries) in [("residual", &self.residuals), ("velocity", &self.velocities)] {
            for (name, values) in entries {
                state.set_floats(&format!("{prefix}{kind}/{name}"), values.clone());
            }
        }
    }

    /// Takes back what [`save`](Self::save) wrote under the same prefix. After an error the
    /// encoder is as it was. A residual of the wrong size is refused when its tensor is encoded
    /// next: only then is the size known.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        state.expect_setting(&format!("{prefix}spec"), &self.spec.to_string())?;
        let entries = |kind: &str| {
            let under = format!("{prefix}{kind}/");
            let entries = state.floats_under(&under);
            entries.map(|(name, values)| (name.to_owned(), values.to_vec())).collect()
        };
        (self.residuals, self.velocities) = (entries("residual"), entries("velocity"));
        Ok(())
    }
}

/// What is kept for a tensor, zero before its first message.
fn of_tensor<'a>(
    kept: &'a mut HashMap<String, Vec<f32>>,
    kind: &str,
    tensor: &Tensor,
) -> Result<&'a mut [f32], StateError> {
    // Two look-ups, because an entry would clone the name at every step.
    if !kept.contains_key(tensor.name()) {
        kept.insert(tensor.name().to_owned(), vec![0.0; tensor.elements()]);
    }
    match kept.get_mut(tensor.name()) {
        Some(values) if values.len() == tensor.elements() => Ok(values),
        other => Err(StateError::WrongSize {
            entry: format!("{kind}/{}", tensor.name()),
            found: other.map_or(0, |values| values.len()),
            expected: tensor.elements(),
        }),
    }
}

/// Zero where elements were sent.
fn forget(values: &mut [f32], sent: Sent, positions: &[u32]) {
    match sent {
        Sent::All => values.fill(0.0),
        Sent::Positions => positions.iter().for_each(|&at| values[at as usize] = 0.0),
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
