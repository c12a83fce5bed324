//! The compressors of one end: which spec each tensor has at a step, and what this rank's messages carried.
//!
//! Residuals, momenta and factors are kept in core's [`Encoder`] by tensor name. They stay with their tensor whatever
//! group it is averaged in and whichever rule chose its compressor.

use gradwire::{Decoder, Element, Encoder, Error, Input, Sent, Spec, State, Tensor};

use crate::state_keys::REDUCE;
use crate::{GroupConfig, Result, Schedule};

/// Encoder and decoder of one end for all tensors of the model.
pub(crate) struct Codecs {
    tensors: Vec<Entry>,
    encoder: Encoder,
    /// Compresses the averages of an owner in scatter-reduce.
    second: Option<Encoder>,
    decoder: Decoder,
}

/// One tensor of the model.
struct Entry {
    schedule: Schedule,
    /// The stage of the schedule that encoders and decoder have been told of.
    stage: Option<usize>,
    /// The names under which it is encoded: its own, or those of its slices.
    names: Vec<String>,
    carried: Carried,
}

/// What the messages of one step carried of a tensor.
#[derive(Debug, Default, Clone)]
pub(crate) struct Carried {
    /// Whether a message carried all elements.
    all: bool,
    /// Increasing flat positions, unless all were carried.
    positions: Vec<u32>,
    /// Length of the messages.
    pub(crate) bytes: usize,
}

impl Carried {
    /// The positions; `None` where all elements were carried.
    pub(crate) fn positions(&self) -> Option<&[u32]> {
        (!self.all).then_some(self.positions.as_slice())
    }

    fn clear(&mut self) {
        self.all = false;
        self.positions.clear();
        self.bytes = 0;
    }
}

impl Codecs {
    /// Those of what workers push.
    pub(crate) fn of_pushes(config: &GroupConfig<'_>, rank: usize) -> Self {
        let schedules = config.tensors.iter().map(|tensor| config.policy.push_of(tensor));
        Self::new(config, schedules, encoder(config, rank))
    }

    /// Those of what workers pull from servers. Momentum has been applied to it already.
    pub(crate) fn of_pulls(config: &GroupConfig<'_>, rank: usize) -> Self {
        let schedules = config.tensors.iter().map(|tensor| config.policy.pull_of(tensor));
        Self::new(config, schedules, encoder(config, rank).with_plain_memory())
    }

    fn new(
        config: &GroupConfig<'_>,
        schedules: impl Iterator<Item = Schedule>,
        encoder: Encoder,
    ) -> Self {
        let entry = |(tensor, schedule): (&Tensor, Schedule)| Entry {
            schedule,
            stage: None,
            names: vec![tensor.name().to_owned()],
            carried: Carried::default(),
        };
        Self {
            tensors: config.tensors.iter().zip(schedules).map(entry).collect(),
            encoder,
            second: None,
            decoder: Decoder::new(&Spec::none(), config.seed),
        }
    }

    /// Encodes each tensor in slices, whose names these are, and gives owners of slices an encoder for their averages.
    pub(crate) fn cut(&mut self, slices: Vec<Vec<String>>, config: &GroupConfig<'_>, rank: usize) {
        for (entry, names) in self.tensors.iter_mut().zip(slices) {
            entry.names = names;
        }
        // Another rank in the draws: both stages of an owner see the same tensor and step.
        self.second = Some(encoder(config, config.workers + rank).with_plain_memory());
    }

    /// Begins a step of a tensor: gives it the step's compressor; nothing has been carried yet.
    pub(crate) fn begin(&mut self, index: usize, step: u64) {
        let stage = self.tensors[index].schedule.stage_at(step);
        self.enter(index, stage);
        self.tensors[index].carried.clear();
    }

    fn enter(&mut self, index: usize, stage: usize) {
        let entry = &mut self.tensors[index];
        if entry.stage == Some(stage) {
            return;
        }
        entry.stage = Some(stage);
        let spec = entry.schedule.stage(stage);
        for name in &entry.names {
            self.encoder.assign(name, spec);
            self.second.iter_mut().for_each(|second| second.assign(name, spec));
            self.decoder.assign(name, spec);
        }
    }

    /// Replaces `message` by the message for a tensor, or for its slice from element `offset` on, and notes what it
    /// carries.
    pub(crate) fn encode(
        &mut self,
        (index, offset): (usize, usize),
        tensor: &Tensor,
        step: u64,
        input: Input<'_>,
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        let sent = self.encoder.encode(tensor, step, input, message)?;
        self.note((index, offset), sent, message.len());
        Ok(())
    }

    /// Notes that a message of `bytes` bytes carried what the encoder sent last.
    fn note(&mut self, (index, offset): (usize, usize), sent: Sent, bytes: usize) {
        let carried = &mut self.tensors[index].carried;
        carried.bytes += bytes;
        match sent {
            Sent::All => carried.all = true,
            Sent::Positions => {
                let positions = self.encoder.positions().iter();
                carried.positions.extend(positions.map(|at| at + offset as u32));
            }
        }
    }

    /// Notes a message with all elements of a tensor that no encoder here has made.
    pub(crate) fn note_raw(&mut self, index: usize, bytes: usize) {
        self.note((index, 0), Sent::All, bytes);
    }

    /// Replaces `message` by the message for a slice's average at its owner.
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
        (step, rank): (u64, usize),
        message: &[u8],
        weight: f32,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.decoder.decode_add(tensor, step, rank as u32, message, weight, out)
    }

    /// Makes what the optimizer takes of the weighted mean of all messages for a tensor, in place: the mean itself, or
    /// the result of a vote.
    pub(crate) fn aggregate(&self, tensor: &Tensor, mean: &mut [f32]) {
        self.decoder.compressor_of(tensor.name()).aggregate(mean);
    }

    /// What messages for a tensor consist of, for linear compressors.
    pub(crate) fn linear(&self, tensor: &Tensor) -> Option<Element> {
        self.encoder.compressor_of(tensor.name()).linear()
    }

    /// Whether a tensor is averaged in rounds of all-reduce.
    pub(crate) fn has_rounds(&self, tensor: &Tensor) -> bool {
        self.encoder.has_rounds(tensor.name())
    }

    /// Replaces `addend` by this rank's of a round of a tensor; false after the last round. See
    /// [`Encoder::contribute`].
    pub(crate) fn contribute(
        &mut self,
        tensor: &Tensor,
        at: (u64, usize),
        input: Input<'_>,
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<bool, Error> {
        self.encoder.contribute(tensor, at, input, means, addend)
    }

    /// Adds what the means of all rounds decode to to `out`.
    pub(crate) fn conclude(
        &mut self,
        index: usize,
        tensor: &Tensor,
        step: u64,
        means: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let sent = self.encoder.conclude(tensor, step, means, out)?;
        self.note((index, 0), sent, 4 * means.len());
        Ok(())
    }

    /// What the messages of the last step carried of a tensor.
    pub(crate) fn carried(&self, index: usize) -> &Carried {
        &self.tensors[index].carried
    }

    /// Swaps what the messages of the last step carried for another's buffers.
    pub(crate) fn swap_carried(&mut self, index: usize, carried: &mut Carried) {
        std::mem::swap(&mut self.tensors[index].carried, carried);
    }

    /// Shows what the messages for a tensor have left out so far, slice by slice.
    pub(crate) fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        let names = self.tensors[index].names.iter();
        names.filter_map(|name| self.encoder.residual(name)).for_each(show);
    }

    /// Whether some tensor's compressor uses the sums of squares of a gradient's parts.
    pub(crate) fn needs_squares(&self) -> bool {
        let mut specs = self.tensors.iter().flat_map(|entry| entry.schedule.specs());
        specs.any(|spec| spec.compressor().keeps_squares())
    }

    /// Whether a tensor is averaged in rounds at some stage, where the exchange is all-reduce.
    pub(crate) fn may_have_rounds(&self, index: usize) -> bool {
        self.tensors[index].schedule.specs().any(|spec| spec.compressor().rounds().is_some())
    }

    /// The names under which tensors are encoded: their own, or those of slices.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().flat_map(|entry| &entry.names).map(String::as_str)
    }

    /// Copies what is kept, for [`rollback`](Self::rollback).
    pub(crate) fn checkpoint(&mut self) {
        self.encoder.checkpoint();
        self.second.iter_mut().for_each(Encoder::checkpoint);
    }

    /// Takes back everything encoded since [`checkpoint`](Self::checkpoint).
    pub(crate) fn rollback(&mut self) {
        self.encoder.rollback();
        self.second.iter_mut().for_each(Encoder::rollback);
    }

    /// Adds what is kept to `state`, under `prefix`; what is kept for averages, under `reduce/`.
    pub(crate) fn save(&self, prefix: &str, state: &mut State) {
        self.encoder.save(prefix, state);
        self.second.iter().for_each(|second| second.save(REDUCE, state));
    }

    /// Takes back what [`save`](Self::save) wrote, at any stage of the schedules.
    ///
    /// # Errors
    /// `State` for a tensor whose state was saved with a compressor that it does not have at any stage.
    pub(crate) fn restore(&mut self, prefix: &str, state: &State) -> Result<()> {
        for index in 0..self.tensors.len() {
            let Entry { schedule, names, .. } = &self.tensors[index];
            let setting = |name: &String| state.setting(&format!("{prefix}spec/{name}")).ok();
            let Some(saved) = names.iter().find_map(setting) else { continue };
            let stage = schedule.specs().position(|spec| spec.to_string() == saved).unwrap_or(0);
            self.enter(index, stage);
        }
        self.encoder.restore(prefix, state)?;
        self.second.iter_mut().try_for_each(|second| second.restore(REDUCE, state))?;
        Ok(())
    }
}

fn encoder(config: &GroupConfig<'_>, rank: usize) -> Encoder {
    Encoder::new(&Spec::none(), config.seed, rank as u32).with_ranks(config.workers as u32)
}
