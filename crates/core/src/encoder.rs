//! The sending end: compressors, and what is kept for each tensor, by the tensor's name.

mod feedback;
mod rounds;
mod state;

use std::collections::HashMap;

use self::feedback::Spare;
use crate::codecs::Codecs;
use crate::source::NonFinite;
use crate::velocity::{accelerate, clipping};
use crate::{
    Compressor, Context, Error, Floats, Input, Memory, SCRATCH, Sent, Source, Spec, StateError,
    Tensor, Workspace,
};

/// Compresses the tensors of one sender. What it keeps (residuals, momenta, factors) belongs to tensor names.
///
/// Every tensor is encoded with the spec that was [assigned](Self::assign) to its name, or else with the encoder's own.
#[derive(Debug)]
pub struct Encoder {
    codecs: Codecs,
    tensors: HashMap<String, Entry>,
    seed: u64,
    rank: u32,
    ranks: u32,
    plain: bool,
    workspace: Workspace,
    scratch: Vec<f32>,
    /// What a residual was multiplied by before an encoding that must be taken off it again.
    stash: Vec<f32>,
    spare: Spare,
}

/// What belongs to one tensor's name.
#[derive(Debug, Default)]
struct Entry {
    /// The place of its compressor.
    codec: usize,
    kept: Kept,
    /// What was kept at the last [checkpoint](Encoder::checkpoint).
    checkpoint: Kept,
    /// Of a method in rounds without error feedback, the gradient of the step in progress.
    gradient: Vec<f32>,
}

/// The arrays that are kept for a tensor from step to step; `None` before they are needed first.
#[derive(Debug, Default)]
struct Kept {
    /// What messages left out so far.
    residual: Option<Vec<f32>>,
    /// A running sum or mean of gradients.
    velocity: Option<Vec<f32>>,
    /// What the method keeps beside these.
    own: Option<Vec<f32>>,
}

impl Kept {
    /// Drops the arrays that `before` had not.
    fn drop_new(&mut self, before: [bool; 3]) {
        for (array, before) in self.arrays_mut().into_iter().zip(before) {
            if !before {
                *array = None;
            }
        }
    }

    fn present(&self) -> [bool; 3] {
        self.arrays().map(|(_, array)| array.is_some())
    }

    /// The arrays with their names in saved states.
    fn arrays(&self) -> [(&'static str, &Option<Vec<f32>>); 3] {
        [("residual", &self.residual), ("velocity", &self.velocity), ("kept", &self.own)]
    }

    fn arrays_mut(&mut self) -> [&mut Option<Vec<f32>>; 3] {
        [&mut self.residual, &mut self.velocity, &mut self.own]
    }
}

impl Encoder {
    /// An encoder that has kept nothing yet, for tensors of `spec` unless another is [assigned](Self::assign).
    pub fn new(spec: &Spec, seed: u64, rank: u32) -> Self {
        Self {
            codecs: Codecs::new(spec),
            tensors: HashMap::new(),
            seed,
            rank,
            ranks: 1,
            plain: false,
            workspace: Workspace::default(),
            scratch: vec![0.0; SCRATCH],
            stash: Vec::new(),
            spare: Spare::default(),
        }
    }

    /// The same encoder as one of `ranks` ranks; without this it counts as the only one.
    pub fn with_ranks(mut self, ranks: u32) -> Self {
        self.ranks = ranks.max(1);
        self
    }

    /// The same encoder with the plain residual in place of a memory of the method's own: for what is
    /// no gradient any more, such as the changes a server sends back, where momentum has been applied already.
    pub fn with_plain_memory(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Encodes the tensor called `name` with `spec` from now on. What is kept for it stays.
    ///
    /// Does nothing, and allocates nothing, where the tensor has an equal spec already.
    pub fn assign(&mut self, name: &str, spec: &Spec) {
        match self.tensors.get_mut(name) {
            Some(entry) if self.codecs.get(entry.codec).spec == *spec => {}
            Some(entry) => entry.codec = self.codecs.place(spec),
            None => {
                let entry = Entry { codec: self.codecs.place(spec), ..Entry::default() };
                self.tensors.insert(name.to_owned(), entry);
            }
        }
    }

    /// The spec that the tensor called `name` is encoded with.
    pub fn spec_of(&self, name: &str) -> &Spec {
        &self.codecs.get(self.codec_of(name)).spec
    }

    /// The compressor of the tensor called `name`, for its limits and its linearity.
    pub fn compressor_of(&self, name: &str) -> &dyn Compressor {
        &*self.codecs.get(self.codec_of(name)).compressor
    }

    /// Whether some tensor's compressor looks at [`Input::squares`].
    pub fn keeps_squares(&self) -> bool {
        self.codecs.iter().any(|codec| codec.compressor.keeps_squares())
    }

    fn codec_of(&self, name: &str) -> usize {
        self.tensors.get(name).map_or(Codecs::DEFAULT, |entry| entry.codec)
    }

    /// Appends the message for `input` to `message` and updates what is kept for the tensor.
    ///
    /// The same (seed, tensor, rank, step, kept state, input) gives the same bytes. On an error
    /// both the state and the message are as they were.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for NaN or infinity in the gradient or its squares, or in its sum with the residual, or in
    /// what a method's own [`Feedback`](crate::Feedback) makes of them; [`Error::WrongLength`] for a gradient or
    /// squares of another length than the tensor's; [`Error::TooLarge`] for a tensor the compressor cannot take;
    /// [`Error::State`] where a restored array is of another size.
    pub fn encode<'a>(
        &mut self,
        tensor: &Tensor,
        step: u64,
        input: impl Into<Input<'a>>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        let input = input.into();
        self.check(tensor, input)?;
        let feedback = self.has_feedback(tensor.name());
        message.reserve(self.compressor_of(tensor.name()).max_len(tensor.elements()));
        let present = self.entry(tensor.name()).kept.present();
        let encoded = match feedback {
            true => self.encode_with_feedback(tensor, step, input, message),
            false => self.encode_with_memory(tensor, step, input, message),
        };
        if encoded.is_err() {
            self.entry(tensor.name()).kept.drop_new(present);
        }
        encoded
    }

    fn check(&self, tensor: &Tensor, input: Input<'_>) -> Result<(), Error> {
        check_size(self.spec_of(tensor.name()), self.compressor_of(tensor.name()), tensor)?;
        check_length(tensor, input.gradient.len())?;
        let Some(squares) = input.squares else { return Ok(()) };
        check_length(tensor, squares.len())?;
        match squares.iter().position(|square| !square.is_finite()) {
            None => Ok(()),
            Some(index) => {
                Err(Error::non_finite(tensor.name(), NonFinite { index, value: squares[index] }))
            }
        }
    }

    fn entry(&mut self, name: &str) -> &mut Entry {
        // Two look-ups, because an entry of the map would clone the name at every step.
        if !self.tensors.contains_key(name) {
            self.tensors.insert(name.to_owned(), Entry::default());
        }
        self.tensors.get_mut(name).expect("it was inserted")
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
        Input { gradient, squares }: Input<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        let name = tensor.name();
        let (memory, plain) = (self.memory(name), self.spec_of(name).memory());
        let non_finite = |at| Error::non_finite(name, at);
        let context = self.context(tensor, step);
        let Self { codecs, tensors, workspace, scratch, stash, .. } = self;
        let entry = tensors.get_mut(name).expect("every tensor in hand has an entry");
        let compressor = &codecs.get(entry.codec).compressor;
        let Kept { residual, velocity, own } = &mut entry.kept;
        let kept = own_of(&**compressor, own, tensor)?;
        match memory {
            Memory::None => {
                let source = Source::new(gradient, memory, None, scratch).map_err(non_finite)?;
                let mut source = source.with_kept(kept);
                if compressor.keeps_squares() {
                    source.add_squares(squares);
                }
                Ok(compressor.encode(&mut source, &context, workspace, message))
            }
            Memory::Residual { .. } => {
                let residual = of_tensor(residual, "residual", tensor)?;
                let source =
                    Source::new(gradient, memory, Some(residual), scratch).map_err(non_finite)?;
                let mut source = source.with_kept(kept).with_plain_memory(self.plain);
                if compressor.keeps_squares() {
                    source.add_squares(squares);
                }
                Ok(compressor.encode(&mut source, &context, workspace, message))
            }
            Memory::Momentum { momentum, clip } => {
                let residual = of_tensor(residual, "residual", tensor)?;
                let velocity = of_tensor(velocity, "velocity", tensor)?;
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
                let velocity = of_tensor(velocity, "velocity", tensor)?;
                let residual = match plain.is_on() {
                    true => Some(of_tensor(residual, "residual", tensor)?),
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
                let sum = of_tensor(residual, "residual", tensor)?;
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
    fn memory(&self, name: &str) -> Memory {
        let (own, plain) = (self.compressor_of(name).memory(), self.spec_of(name).memory());
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
        self.tensors.get(name)?.kept.residual.as_deref()
    }
}

/// A kept array of one number an element, zeros at first.
fn of_tensor<'a>(
    array: &'a mut Option<Vec<f32>>,
    kind: &str,
    tensor: &Tensor,
) -> Result<&'a mut [f32], StateError> {
    numbers_of(array, kind, tensor, tensor.elements())
}

/// What a method keeps for a tensor beside the residual; nothing for most.
fn own_of<'a>(
    compressor: &dyn Compressor,
    array: &'a mut Option<Vec<f32>>,
    tensor: &Tensor,
) -> Result<&'a mut [f32], StateError> {
    match compressor.kept_len(tensor.shape()) {
        0 => Ok(&mut []),
        len => numbers_of(array, "kept", tensor, len),
    }
}

fn numbers_of<'a>(
    array: &'a mut Option<Vec<f32>>,
    kind: &str,
    tensor: &Tensor,
    len: usize,
) -> Result<&'a mut [f32], StateError> {
    let values = array.get_or_insert_with(|| vec![0.0; len]);
    if values.len() != len {
        return Err(StateError::WrongSize {
            entry: format!("{kind}/{}", tensor.name()),
            found: values.len(),
            expected: len,
        });
    }
    Ok(values)
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
