//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages of each tensor. It decodes in rank order, and holds only its own messages
//! and one other rank's at a time. The means replace its gradients. A rank that does not take part
//! in a step sends an empty message. Uncompressed tensors are gathered with the compressor `none`.

use super::collective::{Collective, Reduction};
use super::packed;
use crate::codecs::Sender;
use crate::device::{Forms, Values};
use crate::{Phase, Result};

/// Averages by all-gather; see the [module](self).
#[derive(Default)]
pub(crate) struct AllGather {
    /// This rank's messages of one step.
    own: Vec<u8>,
    /// The messages of another rank.
    received: Vec<u8>,
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
        self.own.clear();
        if step.finite && step.weights[rank] != 0.0 {
            let encoded = step.compress(|step| self.encode(step, &mut values));
            step.note(encoded)?;
        }
        step.send_to_others(operation, &self.own)?;
        for from in 0..step.transport.size() {
            if from != rank {
                step.recv(from, operation, &mut self.received)?;
            }
            if step.finite {
                step.decompress(|step| self.add(step, from, factor, &mut values))?;
            }
        }
        match values {
            Values::Host(means) if step.finite => step.decompress(|step| step.aggregate(means)),
            _ => Ok(()),
        }
    }
}

impl AllGather {
    /// Replaces `self.own` with the messages for all tensors.
    fn encode(&mut self, step: &mut Reduction<'_>, values: &mut Values<'_>) -> Result<()> {
        let Self { own, message, .. } = self;
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

    /// Adds a rank's messages, times its weight and the factor, to the means. A rank with weight 0
    /// sent nothing.
    fn add(
        &mut self,
        step: &mut Reduction<'_>,
        rank: usize,
        factor: f32,
        values: &mut Values<'_>,
    ) -> Result<()> {
        let Self { own, received, forms, .. } = self;
        let packed = if rank == step.transport.rank() { own } else { received };
        let sender = Sender::one_of_all(rank, step.weight(rank, factor));
        let pieces = step.group.pieces();
        match values {
            Values::Host(means) => {
                if rank == 0 {
                    means.fill(0.0);
                }
                step.decode_all(Phase::Gather, sender, packed, pieces, means)
            }
            Values::Device(device) => {
                forms.clear();
                step.each_message(
                    Phase::Gather,
                    sender,
                    packed,
                    pieces,
                    |step, piece, message| {
                        let mut codec = step.codecs.at(&piece, step.step);
                        Ok(forms.push(|form| codec.unpack(rank, message, form))?)
                    },
                )?;
                device.add(rank, sender.weight, &forms.bytes, &forms.ranges)
            }
        }
    }
}
