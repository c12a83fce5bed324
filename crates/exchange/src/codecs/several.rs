//! Groups of tensors that threads encode and decode together.

use gradwire::{Coverage, DecodeJob, EncodeJob, Error, Input, Tensor, Threads};

use super::Codecs;
use super::codec::Sender;
use crate::group::{Group, Piece};

impl Codecs {
    /// Sets the number of threads that encode and decode a group's tensors. They also share a large
    /// tensor that is encoded alone.
    pub(crate) fn use_threads(&mut self, count: usize) {
        self.threads = Threads::new(count);
        self.encoder.use_threads(count);
        self.second.iter_mut().for_each(|second| second.use_threads(count));
    }

    /// The number of these threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.count()
    }

    /// Whether threads share the work for a group.
    pub(crate) fn share(&self, group: &Group) -> bool {
        self.threads.share(group.tensors.len(), group.elements())
    }

    /// Encodes pieces in parallel, calls `take` with each message in order, and records the
    /// elements that it carries.
    pub(crate) fn encode_all(
        &mut self,
        step: u64,
        pieces: &[(Piece<'_>, Input<'_>)],
        mut take: impl FnMut(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let len = pieces.len();
        self.spare.resize_with(len.max(self.spare.len()), Default::default);
        let mut jobs = Vec::with_capacity(len);
        for ((piece, input), (message, positions)) in pieces.iter().zip(self.spare.drain(..len)) {
            let (tensor, input) = (piece.tensor, *input);
            jobs.push(EncodeJob { tensor, input, message, sent: Coverage::All, positions });
        }
        let encoded = self.encoder.encode_all(step, &mut jobs, &mut self.threads);
        for (job, (piece, _)) in jobs.into_iter().zip(pieces) {
            let EncodeJob { mut message, sent, positions, .. } = job;
            if encoded.is_ok() {
                let sent_elements = &mut self.tensors[piece.index].sent_elements;
                sent_elements.note(piece.offset, sent, &positions, message.len());
                take(&mut message);
            }
            self.spare.push((message, positions));
        }
        encoded
    }

    /// Adds a rank's messages for several pieces. The pieces' places in `values` are in order.
    pub(crate) fn add_messages(
        &mut self,
        step: u64,
        sender: Sender,
        messages: &[(Piece<'_>, &[u8])],
        mut values: &mut [f32],
    ) -> Result<(), Error> {
        let sums = |(piece, _): &(Piece<'_>, _)| {
            sender.is_averaged.then(|| std::mem::take(self.sums_of(piece.tensor)))
        };
        let mut sums: Vec<Option<Vec<f32>>> = messages.iter().map(sums).collect();
        let (mut jobs, mut start) = (Vec::with_capacity(messages.len()), 0);
        for ((piece, message), sums) in messages.iter().zip(&mut sums) {
            let from_piece = values.split_at_mut(piece.range.start - start).1;
            let out;
            (out, values) = from_piece.split_at_mut(piece.range.len());
            start = piece.range.end;
            jobs.push(DecodeJob { tensor: piece.tensor, message, sums: sums.as_mut(), out });
        }
        let (from, weight) = ((step, sender.drawn_as as u32), sender.weight);
        let added = self.decoder.accumulate_all(from, weight, jobs, &mut self.threads);
        for ((piece, _), sums) in messages.iter().zip(sums) {
            if let Some(sums) = sums {
                *self.sums_of(piece.tensor) = sums;
            }
        }
        added
    }

    /// The place of the sums of a tensor or slice.
    fn sums_of(&mut self, tensor: &Tensor) -> &mut Vec<f32> {
        self.sums.get_mut(tensor.name()).expect("the step has begun")
    }
}
