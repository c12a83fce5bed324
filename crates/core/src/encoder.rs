//! The sending end: compressors, and the state of each tensor, by the tensor's name.

mod kept;
mod multi_round;
mod several;
mod state;

use std::collections::HashMap;

pub use self::kept::Kept;
use self::kept::{Arrays, KeptArrays};
pub use self::several::EncodeJob;
use crate::device::DeviceArgs;
use crate::memories::{Encoding, Step};
use crate::source::NonFinite;
use crate::specs::{Specs, check_length, check_size};
use crate::workspace::ThreadBuffers;
use crate::{
    Compressor, Context, Coverage, EncodeArgs, Error, Helpers, Input, Residual, Source, Spec,
    Tensor, Workspace,
};

/// Compresses the tensors of one sender. Its state (residuals, momenta, factors) is stored by
/// tensor name.
///
/// A tensor is encoded with the spec [assigned](Self::assign) to its name, or else with the
/// encoder's own.
#[derive(Debug)]
pub struct Encoder {
    specs: Specs,
    tensors: HashMap<String, Entry>,
    sender: Sender,
    buffers: ThreadBuffers,
}

/// The rank that encodes.
#[derive(Debug, Clone, Copy)]
struct Sender {
    seed: u64,
    rank: u32,
    ranks: u32,
    /// Whether values are not gradients.
    plain: bool,
}

/// The spec and the state of one tensor.
#[derive(Debug, Default)]
struct Entry {
    /// The index of its spec.
    spec: usize,
    kept: KeptArrays,
    /// Whether the arrays come from outside and may hold NaN or infinity.
    foreign: bool,
    /// The arrays at the last [checkpoint](Encoder::checkpoint).
    checkpoint: KeptArrays,
    /// For a multi-round method without error feedback: the gradient of the step in progress.
    gradient: Vec<f32>,
}

impl Encoder {
    /// An encoder without state, for tensors of `spec` unless another is [assigned](Self::assign).
    pub fn new(spec: &Spec, seed: u64, rank: u32) -> Self {
        Self {
            specs: Specs(vec![spec.clone()]),
            tensors: HashMap::new(),
            sender: Sender { seed, rank, ranks: 1, plain: false },
            buffers: ThreadBuffers::default(),
        }
    }

    /// Sets the number of ranks that send; 1 by default.
    pub fn with_ranks(mut self, ranks: u32) -> Self {
        self.sender.ranks = ranks.max(1);
        self
    }

    /// Uses the plain residual, with weights 1, in place of the compressor's own memory: for values
    /// that are not gradients, such as the changes that a server sends back, which already include
    /// momentum.
    pub fn with_plain_memory(mut self) -> Self {
        self.sender.plain = true;
        self
    }

    /// Sets the number of [threads](crate::Threads) that share the work on a large tensor: 1 by
    /// default, the caller's; at most [`Threads::MOST`](crate::Threads::MOST). Messages and state
    /// do not depend on it. [`encode_all`](Self::encode_all) has its own threads.
    pub fn use_threads(&mut self, count: usize) {
        self.buffers.workspace.helpers = Helpers::new(count.saturating_sub(1));
    }

    /// Encodes the tensor called `name` with `spec` from now on. Its state does not change;
    /// [`Spec::can_follow`] tells whether the state keeps its meaning with the new spec.
    ///
    /// Does nothing, and allocates nothing, if the tensor already has an equal spec.
    pub fn assign(&mut self, name: &str, spec: &Spec) {
        let entry = entry_of(&mut self.tensors, name);
        entry.spec = self.specs.index_of(spec, entry.spec);
    }

    /// The spec that the tensor called `name` is encoded with.
    pub fn spec_of(&self, name: &str) -> &Spec {
        &self.specs.0[self.tensors.get(name).map_or(Specs::DEFAULT, |entry| entry.spec)]
    }

    /// The compressor of the tensor called `name`, for its limits and its aggregation.
    pub fn compressor_of(&self, name: &str) -> &dyn Compressor {
        self.spec_of(name).compressor()
    }

    /// The positions that the last message carried, if its encoding returned
    /// [`Coverage::Positions`].
    pub fn positions(&self) -> &[u32] {
        &self.buffers.workspace.positions
    }

    /// The residual of a tensor, or the array that the compressor's own [memory](crate::memories)
    /// keeps instead; `None` before the tensor's first message, or without error feedback.
    pub fn residual(&self, name: &str) -> Option<&[f32]> {
        self.tensors.get(name)?.kept.residual()
    }

    /// The tensor's array of this kind; `None` if there is none yet.
    pub fn array(&self, name: &str, kind: Kept) -> Option<&[f32]> {
        self.tensors.get(name)?.kept.0[kind as usize].as_deref()
    }

    /// Replaces the tensor's array of this kind.
    pub fn set_array(&mut self, name: &str, kind: Kept, values: Option<Vec<f32>>) {
        let entry = entry_of(&mut self.tensors, name);
        entry.kept.0[kind as usize] = values;
        entry.foreign = true;
    }

    /// Appends the message for `input` to `message` and updates the tensor's state.
    ///
    /// The same (seed, tensor, rank, step, state, input) gives the same bytes. An error leaves
    /// state and message unchanged.
    ///
    /// The state counts the message as delivered: its content is no longer in the residual. If the
    /// message may get lost, make a [`checkpoint`](Self::checkpoint) first, and [roll
    /// back](Self::rollback) to it after a loss.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for NaN or infinity in the gradient or its squares; [`Error::Overflow`]
    /// in its sum with the residual, or in the new state of the compressor's own
    /// [memory](crate::memories); [`Error::WrongLength`] for a gradient or squares whose length
    /// differs from the tensor's; [`Error::TooLarge`] for a tensor that the compressor does not
    /// accept; [`Error::State`] if a restored array has another size.
    pub fn encode<'a>(
        &mut self,
        tensor: &Tensor,
        step: u64,
        input: impl Into<Input<'a>>,
        message: &mut Vec<u8>,
    ) -> Result<Coverage, Error> {
        let input = input.into();
        self.check(tensor, input)?;
        let Self { specs, tensors, sender, buffers } = self;
        let entry = entry_of(tensors, tensor.name());
        let spec = &specs.0[entry.spec];
        sender.encode(spec, entry, buffers, (tensor, step), input, message)
    }

    /// Appends the message for a [device form](crate::device). The device keeps the tensor's state.
    ///
    /// After an error the bytes that were added to `message` are unspecified.
    ///
    /// # Errors
    /// [`Error::Message`] for a form that does not fit this tensor; [`Error::NoDeviceForm`] for a
    /// host-only method; [`Error::OutOfMemory`].
    pub fn pack(
        &mut self,
        tensor: &Tensor,
        step: u64,
        form: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<Coverage, Error> {
        let context = &self.context(tensor, step);
        let Self { specs, tensors, sender, buffers: ThreadBuffers { workspace, .. } } = self;
        let spec = &specs.0[entry_of(tensors, tensor.name()).spec];
        check_size(spec, tensor)?;
        let device = spec.compressor().device_form().ok_or_else(|| Error::no_device_form(spec))?;
        let elements = tensor.elements();
        let args = DeviceArgs { from: form, to: message, context, elements, workspace };
        device.pack(args).map_err(|source| Error::decoding(tensor.name(), sender.rank, source))
    }

    fn check(&self, tensor: &Tensor, input: Input<'_>) -> Result<(), Error> {
        check_size(self.spec_of(tensor.name()), tensor)?;
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

    fn context<'a>(&self, tensor: &'a Tensor, step: u64) -> Context<'a> {
        self.sender.context(tensor, step)
    }
}

impl Sender {
    /// The residual weights of the spec; for values that are not gradients, 1 and 1.
    fn feedback(self, spec: &Spec) -> Option<Residual> {
        spec.feedback().map(|weights| if self.plain { Residual::PLAIN } else { weights })
    }

    fn context<'a>(&self, tensor: &'a Tensor, step: u64) -> Context<'a> {
        Context { ranks: self.ranks, ..Context::new(self.seed, tensor, step, self.rank) }
    }

    /// Appends the message for a checked input, and updates the tensor's state. Positions are left
    /// in the workspace.
    fn encode(
        self,
        spec: &Spec,
        entry: &mut Entry,
        ThreadBuffers { workspace, scratch }: &mut ThreadBuffers,
        (tensor, step): (&Tensor, u64),
        input: Input<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Coverage, Error> {
        let (context, plain, start) = (self.context(tensor, step), self.plain, message.len());
        let compressor = spec.compressor();
        message.reserve(compressor.max_len(tensor.elements()));

        if entry.foreign {
            let checked = entry.kept.check_velocity();
            checked.map_err(|at| Error::encoding(tensor.name(), input.gradient, at))?;
            entry.foreign = false;
        }
        let feedback = self.feedback(spec);
        let residual = feedback.unwrap_or(Residual::PLAIN);
        let memory = spec.own_memory(plain).unwrap_or(&residual);
        let present = entry.kept.present();
        let velocity = memory.keeps_velocity();
        let arrays = entry.kept.arrays_of(tensor, feedback, velocity, compressor);
        let encoded = arrays.map_err(Error::from).and_then(|arrays| {
            let Arrays { feedback, velocity, kept } = arrays;
            let step = Step { input, feedback, velocity, kept, scratch, plain };
            let mut encode = |source: &mut Source<'_>, workspace: &mut Workspace| {
                compressor.encode(EncodeArgs { source, context: &context, workspace, message })
            };
            let mut encoding = Encoding {
                encode: &mut encode,
                context: &context,
                workspace,
                statistics: compressor.statistics(tensor.elements()),
            };
            let encoded = memory.encode(step, &mut encoding);
            encoded.map_err(|at| Error::encoding(tensor.name(), input.gradient, at))
        });
        if encoded.is_err() {
            entry.kept.drop_new(present);
            message.truncate(start);
        }
        encoded
    }
}

/// The entry of the tensor called `name`, created if missing.
fn entry_of<'a>(tensors: &'a mut HashMap<String, Entry>, name: &str) -> &'a mut Entry {
    // The map's own `entry` would clone the name at every step.
    if !tensors.contains_key(name) {
        tensors.insert(name.to_owned(), Entry::default());
    }
    tensors.get_mut(name).expect("the entry was inserted")
}
