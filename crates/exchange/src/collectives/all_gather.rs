//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages of each tensor, in rank order. It keeps the messages of all ranks and then
//! averages tensor by tensor, so the sums stay in the cache. If that gains nothing, it adds each
//! rank's messages as they arrive, and holds only its own and one other rank's at a time. The means
//! replace its gradients. A rank that does not take part in a step sends an empty message.
//! Uncompressed tensors are gathered with the compressor `none`.

use super::collective::{Collective, Reduction};
use super::packed;
use super::received::Received;
use crate::codecs::Sender;
use crate::device::{Forms, Values};
use crate::{Phase, Result};

/// Averages by all-gather; see the [module](self).
pub(crate) struct AllGather {
    /// This rank's messages of one step; those of all ranks, if they are kept.
    messages: Received,
    /// The messages of another rank, if they are added as they arrive.
    arrived: Vec<u8>,
    message: Vec<u8>,
    /// The device forms of a rank's messages.
    forms: Forms,
}

impl Collective for AllGather {
    fn tells_non_finite(&self) -> bool {
        true
    }

    fn reduce(&mut self, step: &mut Reduction<'_>, mut values: Values<'_>) -> Result<()> {
        let operation = step.operation(Phase::Gather);
        let (rank, factor) = (step.transport.rank(), step.take_factor());
        self.messages.from[rank].clear();
        if step.finite && step.weights[rank] != 0.0 {
            let encoded = step.compress(|step| self.encode(step, &mut values));
            step.note(encoded)?;
        }
        step.send_to_others(operation, &self.messages.from[rank])?;
        let keeps = keeps_all(step, &values);
        for from in 0..step.transport.size() {
            if from != rank {
                let place = if keeps { &mut self.messages.from[from] } else { &mut self.arrived };
                step.recv(from, operation, place)?;
            }
            if step.finite && !keeps {
                step.decompress(|step| self.add(step, from, factor, &mut values))?;
            }
        }
        match values {
            Values::Host(means) if step.finite => step.decompress(|step| {
                let mut pieces = step.group.pieces();
                match keeps {
                    true => self.messages.average(step, Phase::Gather, factor, pieces, means),
                    false => pieces.try_for_each(|piece| step.aggregate(&piece, means)),
                }
            }),
            _ => Ok(()),
        }
    }
}

impl AllGather {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            messages: Received::new(ranks),
            arrived: Vec::new(),
            message: Vec::new(),
            forms: Forms::default(),
        }
    }

    /// Replaces this rank's messages with those for all tensors.
    fn encode(&mut self, step: &mut Reduction<'_>, values: &mut Values<'_>) -> Result<()> {
        let Self { messages, message, .. } = self;
        let own = &mut messages.from[step.transport.rank()];
        let device = match values {
            Values::Host(values) => return step.encode_all(values, own, message),
            Values::Device(device) => device,
        };
        let forms = device.forms()?;
        assert_eq!(forms.ranges.len(), step.group.tensors.len(), "a form for each tensor");
        for (piece, range) in step.group.pieces().zip(forms.ranges) {
            step.codecs.at(&piece, step.step).pack(&forms.bytes[range.clone()], message)?;
            packed::take(message, own);
        }
        Ok(())
    }

    /// Adds a rank's messages, this one's or those that have just arrived, times its weight and the
    /// factor. A rank with weight 0 sent nothing.
    fn add(
        &mut self,
        step: &mut Reduction<'_>,
        rank: usize,
        factor: f32,
        values: &mut Values<'_>,
    ) -> Result<()> {
        let Self { messages, arrived, forms, .. } = self;
        let is_own = rank == step.transport.rank();
        let packed = if is_own { &messages.from[rank] } else { arrived };
        let sender = Sender::one_of_all(rank, step.weight(rank, factor));
        let pieces = step.group.pieces();
        let device = match values {
            Values::Host(means) => {
                if rank == 0 {
                    means.fill(0.0);
                }
                return step.decode_all(Phase::Gather, sender, packed, pieces, means);
            }
            Values::Device(device) => device,
        };
        forms.clear();
        step.each_message(Phase::Gather, sender, packed, pieces, |step, piece, message| {
            let mut codec = step.codecs.at(&piece, step.step);
            Ok(forms.push(|form| codec.unpack(rank, message, form))?)
        })?;
        device.add(rank, sender.weight, &forms.bytes, &forms.ranges)
    }
}

/// Whether the messages of all ranks are kept, to average tensor by tensor. A device and threads
/// that share a group add rank by rank, and with one tensor both orders are the same.
fn keeps_all(step: &Reduction<'_>, values: &Values<'_>) -> bool {
    let on_host = matches!(values, Values::Host(_));
    on_host && step.group.tensors.len() > 1 && !step.codecs.share(step.group)
}
