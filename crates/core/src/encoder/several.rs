//! The encoding of several tensors side by side.

use std::cmp::Reverse;

use super::{Encoder, Entry, entry_of};
use crate::threads::{ENCODING, count_divided};
use crate::workspace::ThreadBuffers;
use crate::{Coverage, Error, Input, Tensor, Threads};

/// One of several tensors to encode.
#[derive(Debug)]
pub struct EncodeJob<'a> {
    /// The tensor. Names differ between jobs.
    pub tensor: &'a Tensor,
    /// Its gradient.
    pub input: Input<'a>,
    /// Out: the message, which replaces the previous content.
    pub message: Vec<u8>,
    /// Out: which elements the message carries.
    pub sent: Coverage,
    /// Out: the increasing flat positions of these elements, if `sent` is [`Coverage::Positions`].
    pub positions: Vec<u32>,
}

impl<'a> EncodeJob<'a> {
    /// A job whose results are empty.
    pub fn new(tensor: &'a Tensor, input: impl Into<Input<'a>>) -> Self {
        let (message, positions) = (Vec::new(), Vec::new());
        Self { tensor, input: input.into(), message, sent: Coverage::All, positions }
    }
}

impl Encoder {
    /// Encodes several tensors side by side, each as [`encode`](Self::encode) does. Threads share a
    /// tensor with more elements than an equal share per thread; one thread works on each of the
    /// other tensors.
    ///
    /// # Errors
    /// The first error of `encode` in the order of jobs. The state of the tensors without an error
    /// has changed nevertheless.
    ///
    /// # Panics
    /// If the tensors of two jobs have the same name.
    pub fn encode_all(
        &mut self,
        step: u64,
        jobs: &mut [EncodeJob<'_>],
        threads: &mut Threads,
    ) -> Result<(), Error> {
        for job in &*jobs {
            self.check(job.tensor, job.input)?;
        }
        let Self { specs, tensors, sender, .. } = self;
        let mut work = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.iter_mut().enumerate() {
            entry_of(tensors, job.tensor.name());
            let (name, entry) = tensors.remove_entry(job.tensor.name()).expect("it was inserted");
            work.push((at, name, entry, job, Ok(())));
        }
        // The largest first, so no thread ends long after the others.
        work.sort_by_key(|(_, _, _, job, _)| Reverse(job.tensor.elements()));
        let encode = |entry: &mut Entry, job: &mut EncodeJob<'_>, buffers: &mut ThreadBuffers| {
            let (spec, EncodeJob { tensor, input, message, .. }) =
                (&specs.0[entry.spec], &mut *job);
            message.clear();
            job.sent = sender.encode(spec, entry, buffers, (tensor, step), *input, message)?;
            std::mem::swap(&mut job.positions, &mut buffers.workspace.positions);
            Ok(())
        };
        let elements = work.iter().map(|(_, _, _, job, _)| job.tensor.elements());
        let (divided, rest) = count_divided(elements, threads.count(), ENCODING);
        let (divided, whole) = work.split_at_mut(divided);
        for (_, _, entry, job, result) in divided {
            *result = encode(entry, job, threads.buffers());
        }
        let whole = whole.iter_mut().collect();
        threads.each(whole, rest, ENCODING, |(_, _, entry, job, result), buffers| {
            *result = encode(entry, job, buffers);
        });
        work.sort_by_key(|(at, ..)| *at);
        let mut first = Ok(());
        for (_, name, entry, _, result) in work {
            let twice = tensors.insert(name, entry).is_some();
            assert!(!twice, "two jobs have the same tensor");
            first = first.and(result);
        }
        first
    }
}
