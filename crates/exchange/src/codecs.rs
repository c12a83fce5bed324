//! The compressors of one rank: the spec of each tensor at a step, and the elements that the rank's
//! messages carried.
//!
//! Core's [`Encoder`] keeps residuals, momenta and factors by tensor name. They do not depend on
//! the tensor's group or on the rule that chose its compressor.

mod codec;
mod sent_elements;
mod several;
mod state;

use std::collections::HashMap;

use gradwire::{Coverage, Decoder, Dtype, Encoder, Kept, Spec, Tensor, Threads};

pub(crate) use self::codec::Sender;
pub(crate) use self::sent_elements::SentElements;
use crate::group::Piece;
use crate::{GroupConfig, Schedule};

/// The encoders and the decoder of one rank, for all tensors of the model.
pub(crate) struct Codecs {
    tensors: Vec<TensorState>,
    encoder: Encoder,
    /// Compresses the averages of an owner in scatter-reduce.
    second: Option<Encoder>,
    decoder: Decoder,
    /// By tensor or slice name, the sums of messages that are not added element by element; empty
    /// for others.
    sums: HashMap<String, Vec<f32>>,
    threads: Threads,
    /// Buffers for the messages and positions of tensors encoded in parallel, for reuse.
    spare: Vec<(Vec<u8>, Vec<u32>)>,
}

/// One tensor of the model.
struct TensorState {
    tensor: Tensor,
    schedule: Schedule,
    /// The schedule stage that the encoders and the decoder use.
    stage: Option<usize>,
    /// The element type of gradients at this stage.
    dtype: Dtype,
    /// The names under which it is encoded: the tensor's name, or the names of its slices.
    names: Vec<String>,
    sent_elements: SentElements,
    /// The estimate that all ranks share, if messages carry changes; empty before the first
    /// message.
    estimate: Estimate,
}

impl TensorState {
    fn new(tensor: &Tensor, schedule: Schedule) -> Self {
        Self {
            tensor: tensor.clone(),
            schedule,
            stage: None,
            dtype: Dtype::F32,
            names: vec![tensor.name().to_owned()],
            sent_elements: SentElements::default(),
            estimate: Estimate::default(),
        }
    }
}

/// The sum of means of changes, which is the same on all ranks, and a copy for rollback.
#[derive(Debug, Default)]
struct Estimate {
    now: Vec<f32>,
    checkpoint: Vec<f32>,
}

/// An array that is kept from step to step.
#[derive(Debug, Clone, Copy)]
pub struct KeptArray<'a> {
    /// The name of the tensor, or of a slice of it: `name[start..end]`.
    pub name: &'a str,
    /// The kind of array.
    pub kind: Kept,
    /// The values that the array belongs to.
    pub of: KeptFor,
}

/// The values that an array is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptFor {
    /// The gradients of this rank.
    Gradients,
    /// The averages of the slices that this rank owns in scatter-reduce.
    Averages,
}

impl Codecs {
    /// The codecs of gradients, which workers send to each other or push to servers.
    pub(crate) fn of_pushes(config: &GroupConfig<'_>, rank: usize) -> Self {
        let schedules = config.tensors.iter().map(|tensor| config.policy.push_of(tensor));
        Self::new(config, schedules, encoder(config, rank))
    }

    /// The codecs of model deltas, which workers pull from servers. The deltas already contain the
    /// momentum.
    pub(crate) fn of_pulls(config: &GroupConfig<'_>, rank: usize) -> Self {
        let schedules = config.tensors.iter().map(|tensor| config.policy.pull_of(tensor));
        Self::new(config, schedules, encoder(config, rank).with_plain_memory())
    }

    fn new(
        config: &GroupConfig<'_>,
        schedules: impl Iterator<Item = Schedule>,
        encoder: Encoder,
    ) -> Self {
        let tensors = config.tensors.iter().zip(schedules);
        Self {
            tensors: tensors.map(|(tensor, schedule)| TensorState::new(tensor, schedule)).collect(),
            encoder,
            second: None,
            decoder: Decoder::new(&Spec::none(), config.seed),
            sums: HashMap::new(),
            threads: Threads::new(1),
            spare: Vec::new(),
        }
    }

    /// Adds the last tensor of the model.
    pub(crate) fn add(&mut self, tensor: &Tensor, schedule: Schedule) {
        self.tensors.push(TensorState::new(tensor, schedule));
    }

    /// Encodes the last tensor in slices with these names.
    pub(crate) fn cut_last(&mut self, names: Vec<String>) {
        if let Some(last) = self.tensors.last_mut() {
            last.names = names;
        }
    }

    /// Encodes each tensor in slices with these names.
    pub(crate) fn cut(&mut self, slices: Vec<Vec<String>>) {
        for (codec, names) in self.tensors.iter_mut().zip(slices) {
            codec.names = names;
        }
    }

    /// Adds an encoder for the averages of this rank's own slices.
    pub(crate) fn compress_averages(&mut self, config: &GroupConfig<'_>, rank: usize) {
        // Another rank number for the random draws: an owner encodes the same tensor and step
        // twice.
        self.second = Some(encoder(config, config.workers() + rank).with_plain_memory());
    }

    /// Begins a step of a tensor: selects the step's compressor and clears the record of sent
    /// elements.
    pub(crate) fn begin(&mut self, index: usize, step: u64) {
        self.begin_of(index, step, Dtype::F32);
    }

    /// As [`begin`](Self::begin), for gradients of this element type.
    pub(crate) fn begin_of(&mut self, index: usize, step: u64, dtype: Dtype) {
        let stage = self.tensors[index].schedule.stage_at(step);
        self.enter(index, stage, dtype);
        self.tensors[index].sent_elements.clear();
    }

    fn enter(&mut self, index: usize, stage: usize, dtype: Dtype) {
        let codec = &mut self.tensors[index];
        if codec.stage == Some(stage) && codec.dtype == dtype {
            return;
        }
        (codec.stage, codec.dtype) = (Some(stage), dtype);
        let spec = codec.schedule.stage(stage).for_elements(dtype);
        for name in &codec.names {
            self.encoder.assign(name, &spec);
            self.second.iter_mut().for_each(|second| second.assign(name, &spec));
            self.decoder.assign(name, &spec);
            self.sums.entry(name.clone()).or_default();
        }
    }

    /// Selects the compressors of a step for all tensors.
    pub(crate) fn enter_all(&mut self, step: u64) {
        for index in 0..self.tensors.len() {
            let TensorState { schedule, dtype, .. } = &self.tensors[index];
            let (stage, dtype) = (schedule.stage_at(step), *dtype);
            self.enter(index, stage, dtype);
        }
    }

    /// A kept array.
    pub(crate) fn array(&self, array: KeptArray<'_>) -> Option<&[f32]> {
        match array.of {
            KeptFor::Gradients => self.encoder.array(array.name, array.kind),
            KeptFor::Averages => self.second.as_ref()?.array(array.name, array.kind),
        }
    }

    /// Replaces a kept array of the tensor at this place of the model, or of a slice of it. Returns
    /// false, and does nothing, if the tensor is not encoded under this name.
    pub(crate) fn set_array(
        &mut self,
        index: usize,
        array: KeptArray<'_>,
        values: Option<Vec<f32>>,
    ) -> bool {
        let Self { tensors, encoder, second, .. } = self;
        let TensorState { schedule, stage, names, .. } = &tensors[index];
        let encoder = match array.of {
            KeptFor::Gradients => Some(encoder),
            KeptFor::Averages => second.as_mut(),
        };
        let Some(encoder) = encoder.filter(|_| names.iter().any(|name| name == array.name)) else {
            return false;
        };
        // A saved state names each array's compressor; before the first step none is assigned.
        encoder.assign(array.name, schedule.stage(stage.unwrap_or(0)));
        encoder.set_array(array.name, array.kind, values);
        true
    }

    /// Forgets the residual and everything else that is kept for a tensor or its slices. Returns
    /// whether something was kept.
    pub(crate) fn forget(&mut self, index: usize) -> bool {
        let Self { tensors, encoder, second, .. } = self;
        let estimate = std::mem::take(&mut tensors[index].estimate);
        let mut kept = !estimate.now.is_empty();
        for name in &tensors[index].names {
            kept |= encoder.forget_tensor(name);
            kept |= second.as_mut().is_some_and(|second| second.forget_tensor(name));
        }
        kept
    }

    /// Records which elements of a piece the message just encoded carries.
    fn note(&mut self, piece: &Piece<'_>, sent: Coverage, bytes: usize) {
        let sent_elements = &mut self.tensors[piece.index].sent_elements;
        sent_elements.note(piece.offset, sent, self.encoder.positions(), bytes);
    }

    /// Records another encoder's message that carries all elements of a tensor.
    pub(crate) fn note_raw(&mut self, index: usize, bytes: usize) {
        self.tensors[index].sent_elements.note(0, Coverage::All, &[], bytes);
    }

    /// If messages of a tensor carry changes, adds the mean of all ranks' changes to the estimate,
    /// and replaces the mean by the estimate. Call it once a step, with the mean that all ranks
    /// have.
    pub(crate) fn add_changes(&mut self, index: usize, mean: &mut [f32]) {
        if !self.sends_changes(index) {
            return;
        }
        let TensorState { estimate, sent_elements, .. } = &mut self.tensors[index];
        estimate.now.resize(mean.len(), 0.0);
        for (sum, mean) in estimate.now.iter_mut().zip(mean) {
            *sum += *mean;
            *mean = *sum;
        }
        // The estimate also includes the elements that no message changed.
        sent_elements.include_all();
    }

    /// Whether an average of a tensor is the weighted sum of its messages' values: they carry no
    /// changes and no votes, and nothing counts the ranks that sent an element.
    pub(crate) fn adds_up(&self, index: usize) -> bool {
        let TensorState { schedule, stage, .. } = &self.tensors[index];
        let spec = schedule.stage(stage.unwrap_or(0));
        let compressor = spec.compressor();
        !spec.sends_changes() && !compressor.votes() && compressor.accumulator().is_none()
    }

    /// Whether the messages of a tensor carry changes.
    pub(crate) fn sends_changes(&self, index: usize) -> bool {
        let TensorState { schedule, stage, .. } = &self.tensors[index];
        stage.is_some_and(|stage| schedule.stage(stage).sends_changes())
    }

    /// Whether the messages of a tensor are its gradients.
    pub(crate) fn sends_gradients(&self, index: usize) -> bool {
        let TensorState { schedule, stage, .. } = &self.tensors[index];
        stage.is_some_and(|stage| schedule.stage(stage).sends_gradients())
    }

    /// The element type of messages for a tensor; `None` unless its compressor is linear.
    pub(crate) fn linear(&self, tensor: &Tensor) -> Option<Dtype> {
        self.encoder.compressor_of(tensor.name()).linear()
    }

    /// Whether a tensor is averaged in rounds of all-reduce.
    pub(crate) fn has_rounds(&self, tensor: &Tensor) -> bool {
        self.encoder.has_rounds(tensor.name())
    }

    /// The compressor of a tensor at a step.
    pub(crate) fn spec_at(&self, index: usize, step: u64) -> &Spec {
        self.tensors[index].schedule.at(step)
    }

    /// The elements of a tensor that the messages of the last step carried.
    pub(crate) fn sent_elements(&self, index: usize) -> &SentElements {
        &self.tensors[index].sent_elements
    }

    /// Swaps the elements that the messages of the last step carried with `carried`.
    pub(crate) fn swap_sent_elements(&mut self, index: usize, sent_elements: &mut SentElements) {
        std::mem::swap(&mut self.tensors[index].sent_elements, sent_elements);
    }

    /// Records that the messages of a tensor carry nothing of this rank's own gradient.
    pub(crate) fn carry_nothing(&mut self, index: usize) {
        self.tensors[index].sent_elements.exclude_all();
    }

    /// Calls `show` with the residual of a tensor, slice by slice.
    pub(crate) fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        let names = self.tensors[index].names.iter();
        names.filter_map(|name| self.encoder.residual(name)).for_each(show);
    }

    /// Whether the values that a tensor's message omits are kept for the next message.
    pub(crate) fn keeps_residual(&self, tensor: &Tensor) -> bool {
        self.encoder.spec_of(tensor.name()).feedback().is_some()
    }

    /// Whether some tensor's compressor uses the sums of squares of a gradient's parts.
    pub(crate) fn needs_squares(&self) -> bool {
        let mut specs = self.tensors.iter().flat_map(|codec| codec.schedule.specs());
        specs.any(|spec| spec.compressor().keeps_squares())
    }

    /// Whether a tensor is averaged in rounds at some stage, if the exchange is all-reduce.
    pub(crate) fn may_have_rounds(&self, index: usize) -> bool {
        self.tensors[index].schedule.specs().any(|spec| spec.compressor().rounds().is_some())
    }

    /// The names under which tensors are encoded: their own names, or the names of slices.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().flat_map(|codec| &codec.names).map(String::as_str)
    }
}

fn encoder(config: &GroupConfig<'_>, rank: usize) -> Encoder {
    Encoder::new(&Spec::none(), config.seed, rank as u32).with_ranks(config.workers() as u32)
}
