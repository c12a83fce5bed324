//! The compressors of one rank: the spec of each tensor at a step, and the elements that the rank's messages carried.
//!
//! Residuals, momenta and factors are kept in core's [`Encoder`] by tensor name. They do not depend on the group that
//! the tensor is averaged in, or on the rule that chose its compressor.

mod carried;
mod several;
mod state;

use std::collections::HashMap;

use gradwire::{
    Decoder, Dtype, Encoder, Error, Input, Kept, ReduceOp, Round, Sent, Spec, Tensor, Threads,
};

pub(crate) use self::carried::Carried;
use crate::{GroupConfig, Schedule};

/// The encoders and the decoder of one rank, for all tensors of the model.
pub(crate) struct Codecs {
    tensors: Vec<TensorCodec>,
    encoder: Encoder,
    /// Compresses the averages of an owner in scatter-reduce.
    second: Option<Encoder>,
    decoder: Decoder,
    /// The sums of messages that are not added up in elements, by the name of the tensor or slice.
    sums: HashMap<String, Vec<f32>>,
    threads: Threads,
    /// Messages and positions of tensors that were encoded side by side, for reuse.
    spare: Vec<(Vec<u8>, Vec<u32>)>,
}

/// One tensor of the model.
struct TensorCodec {
    tensor: Tensor,
    schedule: Schedule,
    /// The stage of the schedule that encoders and decoder are set to.
    stage: Option<usize>,
    /// The names under which it is encoded: the tensor's, or those of its slices.
    names: Vec<String>,
    carried: Carried,
    /// Where messages carry changes: the ranks' common estimate, empty before the first.
    estimate: Estimate,
}

/// The sum of means of changes, which is the same on all ranks, and a copy for rollback.
#[derive(Debug, Default)]
struct Estimate {
    now: Vec<f32>,
    checkpoint: Vec<f32>,
}

/// Whose messages are decoded, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    /// The rank that sent them; with a weight of 0 it sent nothing.
    pub(crate) rank: usize,
    /// The rank in the key of their random draws.
    pub(crate) drawn_as: u32,
    /// Their weight in the mean.
    pub(crate) weight: f32,
    /// Whether those of other ranks are added to them, and [`Codecs::aggregate`] ends the sum.
    pub(crate) is_averaged: bool,
}

impl Sender {
    /// One of the ranks whose messages are averaged.
    pub(crate) fn one_of_all(rank: usize, weight: f32) -> Self {
        Self { rank, drawn_as: rank as u32, weight, is_averaged: true }
    }

    /// The only rank that sends messages of some pieces.
    pub(crate) fn alone(rank: usize, drawn_as: usize) -> Self {
        Self { rank, drawn_as: drawn_as as u32, weight: 1.0, is_averaged: false }
    }
}

impl Codecs {
    /// The codecs of gradients, which workers send to each other or push to servers.
    pub(crate) fn of_pushes(config: &GroupConfig<'_>, rank: usize) -> Self {
        let schedules = config.tensors.iter().map(|tensor| config.policy.push_of(tensor));
        Self::new(config, schedules, encoder(config, rank))
    }

    /// The codecs of model deltas, which workers pull from servers. They contain the momentum already.
    pub(crate) fn of_pulls(config: &GroupConfig<'_>, rank: usize) -> Self {
        let schedules = config.tensors.iter().map(|tensor| config.policy.pull_of(tensor));
        Self::new(config, schedules, encoder(config, rank).with_plain_memory())
    }

    fn new(
        config: &GroupConfig<'_>,
        schedules: impl Iterator<Item = Schedule>,
        encoder: Encoder,
    ) -> Self {
        let codec = |(tensor, schedule): (&Tensor, Schedule)| TensorCodec {
            tensor: tensor.clone(),
            schedule,
            stage: None,
            names: vec![tensor.name().to_owned()],
            carried: Carried::default(),
            estimate: Estimate::default(),
        };
        Self {
            tensors: config.tensors.iter().zip(schedules).map(codec).collect(),
            encoder,
            second: None,
            decoder: Decoder::new(&Spec::none(), config.seed),
            sums: HashMap::new(),
            threads: Threads::new(1),
            spare: Vec::new(),
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
        // Random draws with another rank number: both encodings of an owner have the same tensor and step.
        self.second = Some(encoder(config, config.workers() + rank).with_plain_memory());
    }

    /// Begins a step of a tensor: selects the step's compressor and clears the elements carried.
    pub(crate) fn begin(&mut self, index: usize, step: u64) {
        let stage = self.tensors[index].schedule.stage_at(step);
        self.enter(index, stage);
        self.tensors[index].carried.clear();
    }

    fn enter(&mut self, index: usize, stage: usize) {
        let codec = &mut self.tensors[index];
        if codec.stage == Some(stage) {
            return;
        }
        codec.stage = Some(stage);
        let spec = codec.schedule.stage(stage);
        for name in &codec.names {
            self.encoder.assign(name, spec);
            self.second.iter_mut().for_each(|second| second.assign(name, spec));
            self.decoder.assign(name, spec);
        }
    }

    /// Replaces `message` by the message for a tensor, or for its slice from element `offset` on, and records the
    /// elements that it carries.
    pub(crate) fn encode(
        &mut self,
        index: usize,
        offset: usize,
        tensor: &Tensor,
        step: u64,
        input: Input<'_>,
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        let sent = self.encoder.encode(tensor, step, input, message)?;
        self.tensors[index].carried.note(offset, sent, self.encoder.positions(), message.len());
        Ok(())
    }

    /// Replaces `message` by the message of a tensor's device form, and records the elements that it carries.
    pub(crate) fn pack(
        &mut self,
        index: usize,
        tensor: &Tensor,
        step: u64,
        form: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        let sent = self.encoder.pack(tensor, step, form, message)?;
        self.tensors[index].carried.note(0, sent, self.encoder.positions(), message.len());
        Ok(())
    }

    /// Appends the device form of a rank's message to `form`.
    pub(crate) fn unpack(
        &mut self,
        tensor: &Tensor,
        step: u64,
        rank: usize,
        message: &[u8],
        form: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.decoder.unpack(tensor, step, rank as u32, message, form)
    }

    /// The array of a kind that is kept for a tensor.
    pub(crate) fn array(&self, name: &str, kind: Kept) -> Option<&[f32]> {
        self.encoder.array(name, kind)
    }

    /// Replaces the array of a kind that is kept for a tensor.
    pub(crate) fn set_array(&mut self, index: usize, kind: Kept, values: Option<Vec<f32>>) {
        let Self { tensors, encoder, .. } = self;
        let TensorCodec { tensor, schedule, stage, .. } = &tensors[index];
        // A state names the compressor of each array, and before the first step none is assigned.
        encoder.assign(tensor.name(), schedule.stage(stage.unwrap_or(0)));
        encoder.set_array(tensor.name(), kind, values);
    }

    /// Records a message with all elements of a tensor that another encoder made.
    pub(crate) fn note_raw(&mut self, index: usize, bytes: usize) {
        self.tensors[index].carried.note(0, Sent::All, &[], bytes);
    }

    /// Replaces `message` by the owner's message for the average of a slice.
    pub(crate) fn encode_average(
        &mut self,
        slice: &Tensor,
        step: u64,
        values: &[f32],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        let second = self.second.as_mut().expect("tensors were cut");
        second.encode(slice, step, gradwire::Floats::F32(values), message).map(drop)
    }

    /// Adds `weight` times the decoded message of a rank to `out`.
    pub(crate) fn decode_add(
        &mut self,
        tensor: &Tensor,
        step: u64,
        rank: usize,
        message: &[u8],
        weight: f32,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.decoder.decode_add(tensor, step, rank as u32, message, weight, out)
    }

    /// Adds a message, times the sender's weight; call [`aggregate`](Self::aggregate) after the last of several that are
    /// averaged.
    pub(crate) fn add_message(
        &mut self,
        tensor: &Tensor,
        step: u64,
        sender: Sender,
        message: &[u8],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let Sender { drawn_as, weight, is_averaged, .. } = sender;
        if !is_averaged {
            return self.decoder.decode_add(tensor, step, drawn_as, message, weight, out);
        }
        let sums = match self.sums.get_mut(tensor.name()) {
            Some(sums) => sums,
            None => self.sums.entry(tensor.name().to_owned()).or_default(),
        };
        self.decoder.accumulate(tensor, (step, drawn_as), message, weight, sums, out)
    }

    /// Turns the weighted mean of all messages for a tensor into the input of the optimizer, in place: the mean itself,
    /// or the result of a vote.
    pub(crate) fn aggregate(
        &mut self,
        tensor: &Tensor,
        step: u64,
        mean: &mut [f32],
    ) -> Result<(), Error> {
        if let Some(sums) = self.sums.get_mut(tensor.name()) {
            self.decoder.finish(tensor, step, sums, mean)?;
        }
        self.decoder.compressor_of(tensor.name()).aggregate(mean);
        Ok(())
    }

    /// Where messages of a tensor carry changes, adds the mean of all ranks' changes to the estimate, and replaces the mean by
    /// it. Call it once a step, with the mean that all ranks have.
    pub(crate) fn add_changes(&mut self, index: usize, mean: &mut [f32]) {
        if !self.sends_changes(index) {
            return;
        }
        let TensorCodec { estimate, carried, .. } = &mut self.tensors[index];
        estimate.now.resize(mean.len(), 0.0);
        for (sum, mean) in estimate.now.iter_mut().zip(mean) {
            *sum += *mean;
            *mean = *sum;
        }
        // Elements that the messages did not change are part of the estimate, too.
        carried.include_all();
    }

    /// Whether the messages of a tensor carry changes.
    pub(crate) fn sends_changes(&self, index: usize) -> bool {
        let TensorCodec { schedule, stage, .. } = &self.tensors[index];
        stage.is_some_and(|stage| schedule.stage(stage).sends_changes())
    }

    /// The element type of messages for a tensor; `None` unless its compressor is linear.
    pub(crate) fn linear(&self, tensor: &Tensor) -> Option<Dtype> {
        self.encoder.compressor_of(tensor.name()).linear()
    }

    /// Whether a tensor is averaged in rounds of all-reduce.
    pub(crate) fn has_rounds(&self, tensor: &Tensor) -> bool {
        self.encoder.has_rounds(tensor.name())
    }

    /// Replaces `addend` by this rank's addend in a round of a tensor; `None` after the last round. See
    /// [`Encoder::contribute`].
    pub(crate) fn contribute(
        &mut self,
        tensor: &Tensor,
        step: u64,
        round: usize,
        input: Input<'_>,
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<Option<ReduceOp>, Error> {
        self.encoder.contribute(tensor, step, round, input, means, addend)
    }

    /// Decodes the means of all rounds and adds the result to `out`. This rank's addends took `bytes`.
    pub(crate) fn conclude(
        &mut self,
        index: usize,
        bytes: usize,
        tensor: &Tensor,
        step: u64,
        means: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let sent = self.encoder.conclude(tensor, step, means, out)?;
        self.tensors[index].carried.note(0, sent, self.encoder.positions(), bytes);
        Ok(())
    }

    /// Appends what a device needs for its addend in a round of a tensor. See [`Encoder::device_round`].
    pub(crate) fn device_round(
        &mut self,
        tensor: &Tensor,
        step: u64,
        round: usize,
        means: &[f32],
        form: &mut Vec<u8>,
    ) -> Result<Option<Round>, Error> {
        self.encoder.device_round(tensor, step, round, means, form)
    }

    /// As [`conclude`](Self::conclude), and appends what the device adds.
    pub(crate) fn device_conclude(
        &mut self,
        index: usize,
        bytes: usize,
        tensor: &Tensor,
        step: u64,
        means: &[f32],
        form: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let sent = self.encoder.device_conclude(tensor, step, means, form)?;
        self.tensors[index].carried.note(0, sent, self.encoder.positions(), bytes);
        Ok(())
    }

    /// The compressor of a tensor at a step.
    pub(crate) fn spec_at(&self, index: usize, step: u64) -> &Spec {
        self.tensors[index].schedule.at(step)
    }

    /// The elements of a tensor that the messages of the last step carried.
    pub(crate) fn carried(&self, index: usize) -> &Carried {
        &self.tensors[index].carried
    }

    /// Swaps the elements that the messages of the last step carried with `carried`.
    pub(crate) fn swap_carried(&mut self, index: usize, carried: &mut Carried) {
        std::mem::swap(&mut self.tensors[index].carried, carried);
    }

    /// Records that the messages of a tensor carry nothing of this rank's own gradient.
    pub(crate) fn carry_nothing(&mut self, index: usize) {
        self.tensors[index].carried.exclude_all();
    }

    /// Calls `show` with the residual of a tensor, slice by slice.
    pub(crate) fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        let names = self.tensors[index].names.iter();
        names.filter_map(|name| self.encoder.residual(name)).for_each(show);
    }

    /// Whether what a message of a tensor leaves out is kept for the next one.
    pub(crate) fn keeps_residual(&self, tensor: &Tensor) -> bool {
        self.encoder.spec_of(tensor.name()).feedback().is_some()
    }

    /// Whether some tensor's compressor uses the sums of squares of a gradient's parts.
    pub(crate) fn needs_squares(&self) -> bool {
        let mut specs = self.tensors.iter().flat_map(|codec| codec.schedule.specs());
        specs.any(|spec| spec.compressor().keeps_squares())
    }

    /// Whether a tensor is averaged in rounds at some stage, where the exchange is all-reduce.
    pub(crate) fn may_have_rounds(&self, index: usize) -> bool {
        self.tensors[index].schedule.specs().any(|spec| spec.compressor().rounds().is_some())
    }

    /// The names under which tensors are encoded: their own, or those of slices.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().flat_map(|codec| &codec.names).map(String::as_str)
    }
}

fn encoder(config: &GroupConfig<'_>, rank: usize) -> Encoder {
    Encoder::new(&Spec::none(), config.seed, rank as u32).with_ranks(config.workers() as u32)
}
