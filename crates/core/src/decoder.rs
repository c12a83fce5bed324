//! The receiving end: from bytes to a tensor, without the sender's state.

use std::cmp::Reverse;
use std::collections::HashMap;

use gradwire_bits::try_resize;

use crate::device::DeviceArgs;
use crate::specs::{Specs, check_length, check_size};
use crate::threads::{DECODING, count_divided};
use crate::workspace::ThreadBuffers;
use crate::{Compressor, Context, DecodeArgs, Error, Spec, Tensor, Threads, Workspace};

/// Decodes messages with the spec [assigned](Self::assign) to the tensor's name, or else with the
/// decoder's own.
#[derive(Debug)]
pub struct Decoder {
    specs: Specs,
    /// The index of the spec of each tensor with an assigned spec.
    assigned: HashMap<String, usize>,
    seed: u64,
    workspace: Workspace,
}

/// The message of one of several tensors, for [`Decoder::accumulate_all`].
#[derive(Debug)]
pub struct DecodeJob<'a> {
    /// The tensor.
    pub tensor: &'a Tensor,
    /// Its message.
    pub message: &'a [u8],
    /// The sums of messages, as for [`Decoder::accumulate`]; `None` to add the message by itself,
    /// as [`Decoder::decode_add`] does.
    pub sums: Option<&'a mut Vec<f32>>,
    /// The tensor's elements; the message is added to them.
    pub out: &'a mut [f32],
}

impl Decoder {
    /// A decoder in a run with `seed`, for messages of `spec` unless another is
    /// [assigned](Self::assign).
    ///
    /// The seed must be the same as in the senders' encoders. With another seed, step, rank or
    /// tensor name, methods that draw random numbers, such as `eden`, decode wrong values, and
    /// nothing in a message reveals this.
    pub fn new(spec: &Spec, seed: u64) -> Self {
        Self {
            specs: Specs(vec![spec.clone()]),
            assigned: HashMap::new(),
            seed,
            workspace: Workspace::default(),
        }
    }

    /// Decodes the messages for the tensor called `name` with `spec` from now on.
    ///
    /// Does nothing, and allocates nothing, if the tensor already has an equal spec.
    pub fn assign(&mut self, name: &str, spec: &Spec) {
        match self.assigned.get_mut(name) {
            Some(index) => *index = self.specs.index_of(spec, *index),
            None => {
                let index = self.specs.index_of(spec, Specs::DEFAULT);
                self.assigned.insert(name.to_owned(), index);
            }
        }
    }

    /// The spec that the messages for the tensor called `name` are decoded with.
    pub fn spec_of(&self, name: &str) -> &Spec {
        &self.specs.0[self.index_of(name)]
    }

    /// The compressor of the tensor called `name`, for its limits and its aggregation.
    pub fn compressor_of(&self, name: &str) -> &dyn Compressor {
        self.spec_of(name).compressor()
    }

    fn index_of(&self, name: &str) -> usize {
        self.assigned.get(name).copied().unwrap_or(Specs::DEFAULT)
    }

    /// Adds `weight`, a finite number, times the decoded message of `rank` to `out`. An error
    /// leaves `out` unchanged.
    ///
    /// For methods that vote or send changes, the sum is not yet the gradient; see the [crate's
    /// documentation](crate).
    ///
    /// # Errors
    /// [`Error::Message`] for bytes that are not a message of this configuration and tensor;
    /// [`Error::OutOfMemory`]; [`Error::WrongLength`] and [`Error::TooLarge`] as for
    /// [`Encoder::encode`](crate::Encoder::encode).
    pub fn decode_add(
        &mut self,
        tensor: &Tensor,
        step: u64,
        rank: u32,
        message: &[u8],
        weight: f32,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let spec = &self.specs.0[self.index_of(tensor.name())];
        let context = &Context::new(self.seed, tensor, step, rank);
        let workspace = &mut self.workspace;
        decode_add(spec, tensor, DecodeArgs { message, context, weight, workspace, out })
    }

    /// Checks a message of `rank`, and appends its [device form](crate::device) to `form`.
    ///
    /// # Errors
    /// As for [`decode_add`](Self::decode_add), and [`Error::NoDeviceForm`] for a host-only method.
    pub fn unpack(
        &mut self,
        tensor: &Tensor,
        step: u64,
        rank: u32,
        message: &[u8],
        form: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let spec = &self.specs.0[self.index_of(tensor.name())];
        check_size(spec, tensor)?;
        let device = spec.compressor().device_form().ok_or_else(|| Error::no_device_form(spec))?;
        let context = &Context::new(self.seed, tensor, step, rank);
        let (elements, workspace) = (tensor.elements(), &mut self.workspace);
        let args = DeviceArgs { from: message, to: form, context, elements, workspace };
        device.unpack(args).map_err(|source| Error::decoding(tensor.name(), rank, source))
    }

    /// As [`decode_add`](Self::decode_add), for one of several messages. They are added up in
    /// `sums`, which is empty before the first one; [`finish`](Self::finish) adds the result to
    /// `out`. If the compressor has no [`Accumulator`](crate::Accumulator), the message is added to
    /// `out` right away.
    ///
    /// # Errors
    /// As for [`decode_add`](Self::decode_add).
    pub fn accumulate(
        &mut self,
        tensor: &Tensor,
        (step, rank): (u64, u32),
        message: &[u8],
        weight: f32,
        sums: &mut Vec<f32>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let spec = &self.specs.0[self.index_of(tensor.name())];
        let context = &Context::new(self.seed, tensor, step, rank);
        let workspace = &mut self.workspace;
        let args = DecodeArgs { message, context, weight, workspace, out };
        accumulate(spec, tensor, args, Some(sums))
    }

    /// As [`accumulate`](Self::accumulate) for the messages of several tensors from one rank, side
    /// by side. Threads share a tensor with more elements than an equal share per thread; one
    /// thread works on each of the other tensors.
    ///
    /// # Errors
    /// The error of `accumulate` for the largest tensor that has one. Tensors without an error have
    /// been added nevertheless.
    pub fn accumulate_all(
        &self,
        (step, rank): (u64, u32),
        weight: f32,
        mut jobs: Vec<DecodeJob<'_>>,
        threads: &mut Threads,
    ) -> Result<(), Error> {
        // The largest first, so no thread ends long after the others.
        jobs.sort_by_key(|job| Reverse(job.tensor.elements()));
        let mut failed = Ok(());
        let Self { specs, assigned, seed, .. } = self;
        let add = |job: DecodeJob<'_>, buffers: &mut ThreadBuffers| {
            let index = assigned.get(job.tensor.name()).copied().unwrap_or(Specs::DEFAULT);
            let DecodeJob { tensor, message, sums, out } = job;
            let context = &Context::new(*seed, tensor, step, rank);
            let workspace = &mut buffers.workspace;
            let args = DecodeArgs { message, context, weight, workspace, out };
            accumulate(&specs.0[index], tensor, args, sums)
        };
        let elements = jobs.iter().map(|job| job.tensor.elements());
        let (divided, rest) = count_divided(elements, threads.count(), DECODING);
        let whole = jobs.split_off(divided);
        for job in jobs {
            failed = failed.and(add(job, threads.buffers()));
        }
        let added = threads.try_each(whole, rest, DECODING, add);
        failed.and(added)
    }

    /// Adds the tensor of accumulated messages to `out`, and clears `sums`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn finish(
        &mut self,
        tensor: &Tensor,
        step: u64,
        sums: &mut Vec<f32>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let spec = &self.specs.0[self.index_of(tensor.name())];
        if let Some(accumulator) = spec.compressor().accumulator().filter(|_| !sums.is_empty()) {
            let context = Context::new(self.seed, tensor, step, 0);
            let finished = accumulator.finish(sums, &context, 1.0, &mut self.workspace, out);
            finished.map_err(|source| Error::decoding(tensor.name(), 0, source))?;
            sums.clear();
        }
        Ok(())
    }
}

fn decode_add(spec: &Spec, tensor: &Tensor, args: DecodeArgs<'_>) -> Result<(), Error> {
    check_size(spec, tensor)?;
    check_length(tensor, args.out.len())?;
    let rank = args.context.rank;
    let decoded = spec.compressor().decode_add(args);
    decoded.map_err(|source| Error::decoding(tensor.name(), rank, source))
}

/// Adds a message to `sums`, or to the tensor's elements in `args` without `sums` or an
/// accumulator.
fn accumulate(
    spec: &Spec,
    tensor: &Tensor,
    args: DecodeArgs<'_>,
    sums: Option<&mut Vec<f32>>,
) -> Result<(), Error> {
    let (Some(accumulator), Some(sums)) = (spec.compressor().accumulator(), sums) else {
        return decode_add(spec, tensor, args);
    };
    check_size(spec, tensor)?;
    check_length(tensor, args.out.len())?;
    let rank = args.context.rank;
    let decoded = try_resize(sums, accumulator.sums(tensor.shape()), 0.0)
        .and_then(|()| accumulator.accumulate(DecodeArgs { out: sums, ..args }));
    decoded.map_err(|source| Error::decoding(tensor.name(), rank, source))
}
