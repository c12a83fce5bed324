//! The sending end: a compressor with the residuals it has accumulated, by tensor name.

mod feedback;
mod rounds;
mod state;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::feedback::Spare;
use crate::source::{NonFinite, add_saturating};
use crate::velocity::{accelerate, clipping};
use crate::{
    Compressor, Context, Error, Floats, Memory, SCRATCH, Sent, Source, Spec, StateError, Tensor,
    Workspace,
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
    /// What some methods keep beside it.
    kept: HashMap<String, Vec<f32>>,
    /// The tensors whose squares have been observed since their last message, by id.
    observed: HashSet<u64>,
    /// Of a method in rounds without error feedback, the gradients of the step in progress.
    gradients: HashMap<String, Vec<f32>>,
    /// Residuals, velocities and what is kept, as they were [checkpointed](Self::checkpoint).
    before: [HashMap<String, Vec<f32>>; 3],
    workspace: Workspace,
    scratch: Vec<f32>,
    /// What a residual was multiplied by before an encoding that must be taken off it again.
    stash: Vec<f32>,
    spare: Spare,
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
            kept: HashMap::new(),
            observed: HashSet::new(),
            gradients: HashMap::new(),
            before: Default::default(),
            workspace: Workspace::default(),
            scratch: vec![0.0; SCRATCH],
            stash: Vec::new(),
            spare: Spare::default(),
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

    /// The compressor, for its limits and its linearity.
    pub fn compressor(&self) -> &dyn Compressor {
        &*self.compressor
    }

    /// Appends the message for `gradient` to `message` and updates the tensor's residual.
    ///
    /// The same (seed, tensor, rank, step, residual, gradient) gives the same bytes. On an error
    /// both residual and message are as they were.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for NaN or infinity in the gradient, or in its sum with the residual, or in what a
    /// method's own [`Feedback`](crate::Feedback) makes of them; [`Error::WrongLength`] for a gradient of another
    /// length than the tensor's; [`Error::TooLarge`] for a tensor the compressor cannot take; [`Error::State`] where
    /// a restored residual is of another size.
    pub fn encode(
        &mut self,
        tensor: &Tensor,
        step: u64,
        gradient: Floats<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        self.check(tensor, gradient)?;
        message.reserve(self.compressor.max_len(tensor.elements()));
        let fresh = !self.residuals.contains_key(tensor.name());
        let at_rest = !self.velocities.contains_key(tensor.name());
        let encoded = match self.has_feedback() {
            true => self.encode_with_feedback(tensor, step, gradient, message),
            false => self.encode_with_memory(tensor, step, gradient, message),
        };
        if encoded.is_err() {
            if fresh {
                self.residuals.remove(tensor.name());
            }
            if at_rest {
                self.velocities.remove(tensor.name());
            }
        }
        encoded
    }

    fn check(&self, tensor: &Tensor, gradient: Floats<'_>) -> Result<(), Error> {
        check_size(&self.spec, &*self.compressor, tensor)?;
        check_length(tensor, gradient.len())
    }

    fn context<'a>(&self, tensor: &'a Tensor, step: u64) -> Context<'a> {
        Context {
            seed: self.seed,
            tensor: tensor.id(),
            shape: tensor.shape(),
            step,
            rank: self.rank,
            ranks: self.ranks,
        }
    }

    fn encode_with_memory(
        &mut self,
        tensor: &Tensor,
        step: u64,
        gradient: Floats<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        let (memory, plain) = (self.memory(), self.spec.memory());
        let non_finite = |at| Error::non_finite(tensor.name(), at);
        let context = self.context(tensor, step);
        let Self {
            compressor,
            residuals,
            velocities,
            kept,
            observed,
            workspace,
            scratch,
            stash,
            ..
        } = self;
        let kept = kept_of(&**compressor, kept, tensor)?;
        let own_squares = compressor.keeps_squares() && !observed.contains(&tensor.id());
        match memory {
            Memory::None => {
                let source = Source::new(gradient, memory, None, scratch).map_err(non_finite)?;
                let mut source = source.with_kept(kept);
                if own_squares {
                    source.add_squares();
                }
                observed.remove(&tensor.id());
                Ok(compressor.encode(&mut source, &context, workspace, message))
            }
            Memory::Residual { .. } => {
                let residual = of_tensor(residuals, "residual", tensor)?;
                let source =
                    Source::new(gradient, memory, Some(residual), scratch).map_err(non_finite)?;
                let mut source = source.with_kept(kept).with_plain_memory(self.plain);
                if own_squares {
                    source.add_squares();
                }
                observed.remove(&tensor.id());
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
                accelerate(gradient, [momentum, factor], velocity, Some(residual), scratch)
                    .map_err(non_finite)?;
                let sums = Floats::F32(velocity);
                let mut source = Source::new(sums, Memory::RESIDUAL, Some(residual), scratch)
                    .map_err(non_finite)?;
                let sent = compressor.encode(&mut source, &context, workspace, message);
                forget(velocity, sent, &workspace.positions);
                Ok(sent)
            }
            Memory::Average { decay } => {
                let velocity = of_tensor(velocities, "velocity", tensor)?;
                let residual = match plain.is_on() {
                    true => Some(of_tensor(residuals, "residual", tensor)?),
                    false => None,
                };
                let weights = [decay, 1.0 - decay];
                accelerate(gradient, weights, velocity, residual.as_deref(), scratch)
                    .map_err(non_finite)?;
                let mut source = Source::new(Floats::F32(velocity), plain, residual, scratch)
                    .map_err(non_finite)?;
                Ok(compressor.encode(&mut source, &context, workspace, message))
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

    /// Whether the method goes by how a gradient's parts differ, so that [`observe`](Self::observe) tells it
    /// something.
    pub fn keeps_squares(&self) -> bool {
        self.compressor.keeps_squares()
    }

    /// Tells a method that [keeps squares](Self::keeps_squares) of the parts that the next gradient is the sum of:
    /// the sum of their squares, elementwise. A gradient of which nothing was told counts as a single part.
    ///
    /// # Errors
    /// [`Error::NonFinite`] and [`Error::WrongLength`] as for [`encode`](Self::encode); nothing has changed then.
    pub fn observe(&mut self, tensor: &Tensor, squares: &[f32]) -> Result<(), Error> {
        if !self.keeps_squares() {
            return Ok(());
        }
        check_length(tensor, squares.len())?;
        if let Some(index) = squares.iter().position(|square| !square.is_finite()) {
            let bad = NonFinite { index, value: squares[index] };
            return Err(Error::non_finite(tensor.name(), bad));
        }
        let sums = kept_of(&*self.compressor, &mut self.kept, tensor)?;
        add_saturating(squares.iter().copied(), sums);
        self.observed.insert(tensor.id());
        Ok(())
    }

    /// The memory: the method's own where it has one.
    fn memory(&self) -> Memory {
        let (own, plain) = (self.compressor.memory(), self.spec.memory());
        match own {
            _ if self.plain => plain,
            Some(average @ Memory::Average { .. }) => average,
            _ if !plain.is_on() => plain,
            own => own.unwrap_or(plain),
        }
    }

    /// The positions that the last message carried, where it answered [`Sent::Positions`].
    pub fn positions(&self) -> &[u32] {
        &self.workspace.positions
    }

    /// What the messages for a tensor have left out so far, or the memory of a method with
    /// [`Feedback`](crate::Feedback) of its own; `None` before its first message, or without error feedback.
    pub fn residual(&self, name: &str) -> Option<&[f32]> {
        self.residuals.get(name).map(Vec::as_slice)
    }
}

/// What is kept for a tensor, zero before its first message: a number an element.
fn of_tensor<'a>(
    kept: &'a mut HashMap<String, Vec<f32>>,
    kind: &str,
    tensor: &Tensor,
) -> Result<&'a mut [f32], StateError> {
    numbers_of(kept, kind, tensor, tensor.elements())
}

/// What a method keeps for a tensor beside the residual; nothing for most.
fn kept_of<'a>(
    compressor: &dyn Compressor,
    kept: &'a mut HashMap<String, Vec<f32>>,
    tensor: &Tensor,
) -> Result<&'a mut [f32], StateError> {
    match compressor.kept_len(tensor.shape()) {
        0 => Ok(&mut []),
        len => numbers_of(kept, "kept", tensor, len),
    }
}

fn numbers_of<'a>(
    kept: &'a mut HashMap<String, Vec<f32>>,
    kind: &str,
    tensor: &Tensor,
    len: usize,
) -> Result<&'a mut [f32], StateError> {
    // Two look-ups, because an entry would clone the name at every step.
    if !kept.contains_key(tensor.name()) {
        kept.insert(tensor.name().to_owned(), vec![0.0; len]);
    }
    match kept.get_mut(tensor.name()) {
        Some(values) if values.len() == len => Ok(values),
        other => Err(StateError::WrongSize {
            entry: format!("{kind}/{}", tensor.name()),
            found: other.map_or(0, |values| values.len()),
            expected: len,
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

/// Refuses a buffer of another length than the tensor's.
pub(crate) fn check_length(tensor: &Tensor, found: usize) -> Result<(), Error> {
    if found == tensor.elements() {
        return Ok(());
    }
    let (tensor, expected) = (tensor.name().to_owned(), tensor.elements());
    Err(Error::WrongLength { tensor, expected, found })
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
