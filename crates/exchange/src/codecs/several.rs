//! Groups of tensors that threads encode and decode together.

use gradwire::{DecodeJob, EncodeJob, Error, Floats, Input, LEAST_DIVIDED, Sent, Tensor, Threads};

use super::Codecs;
use crate::collectives::Group;

/// Groups of fewer elements are encoded by one thread: to start another would take longer.
const LEAST: usize = 1 << 17;

impl Codecs {
    /// Sets the number of threads that encode and decode the tensors of a group.
    pub(crate) fn use_threads(&mut self, count: usize) {
        self.threads = Threads::new(count);
    }

    /// The number of those threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.count()
    }

    /// Whether threads share the work for a group.
    pub(crate) fn share(&self, group: &Group) -> bool {
        let least = if group.tensors.len() > 1 { LEAST } else { LEAST_DIVIDED };
        self.threads() > 1 && group.elements() >= least
    }

    /// Encodes the tensors of a group, calls `take` with each message in order, and records the elements that it carries.
    pub(crate) fn encode_all(
        &mut self,
        group: &Group,
        step: u64,
        values: &[f32],
        squares: Option<&[Vec<f32>]>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let len = group.tensors.len();
        self.spare.resize_with(len.max(self.spare.len()), Default::default);
        let mut jobs = Vec::with_capacity(len);
        for (at, (message, positions)) in self.spare.drain(..len).enumerate() {
            let gradient = Floats::F32(&values[group.ranges[at].clone()]);
            let squares = squares.map(|all| &all[group.indices[at]][..]);
            let input = Input { gradient, squares };
            let tensor = &group.tensors[at];
            jobs.push(EncodeJob { tensor, input, message, sent: Sent::All, positions });
        }
        let encoded = self.encoder.encode_all(step, &mut jobs, &mut self.threads);
        for (job, &index) in jobs.into_iter().zip(&group.indices) {
            let EncodeJob { message, sent, positions, .. } = job;
            if encoded.is_ok() {
                self.tensors[index].carried.note(0, sent, &positions, message.len());
                take(&message);
            }
            self.spare.push((message, positions));
        }
        encoded
    }

    /// Adds `weight` times the messages of a rank for all tensors of a group to their means.
    pub(crate) fn add_messages(
        &mut self,
        group: &Group,
        (step, rank): (u64, usize),
        messages: &[&[u8]],
        weight: f32,
        mut means: &mut [f32],
    ) -> Result<(), Error> {
        let mut sums: Vec<Vec<f32>> = group.tensors.iter().map(|one| self.take_sums(one)).collect();
        let mut jobs = Vec::with_capacity(messages.len());
        for ((tensor, message), sums) in group.tensors.iter().zip(messages).zip(&mut sums) {
            let out;
            (out, means) = means.split_at_mut(tensor.elements());
            jobs.push(DecodeJob { tensor, message, sums, out });
        }
        let added =
            self.decoder.accumulate_all((step, rank as u32), weight, jobs, &mut self.threads);
        for (tensor, sums) in group.tensors.iter().zip(sums) {
            self.put_sums(tensor, sums);
        }
        added
    }

    fn take_sums(&mut self, tensor: &Tensor) -> Vec<f32> {
        self.sums.get_mut(tensor.name()).map(std::mem::take).unwrap_or_default()
    }

    fn put_sums(&mut self, tensor: &Tensor, sums: Vec<f32>) {
        match self.sums.get_mut(tensor.name()) {
            Some(place) => *place = sums,
            None if sums.is_empty() => {}
            None => drop(self.sums.insert(tensor.name().to_owned(), sums)),
        }
    }
}
