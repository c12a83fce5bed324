//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages of each tensor, in rank order, once it holds all of them. The means replace
//! its gradients. A rank that does not take part in a step sends an empty message. Uncompressed
//! tensors are gathered with the compressor `none`.

use super::collective::{Collective, Reduction};
use super::packed;
use super::received::Received;
use crate::codecs::Sender;
use crate::device::{DeviceGroup, Forms, Values};
use crate::{Phase, Result};

/// Averages by all-gather; see the [module](self).
pub(crate) struct AllGather {
    /// The messages of one step, this rank's among them.
    messages: Received,
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
        for from in 0..step.transport.size() {
            if from != rank {
                step.recv(from, operation, &mut self.messages.from[from])?;
            }
            if let (true, Values::Device(device)) = (step.finite, &mut values) {
                step.decompress(|step| self.add_forms(step, from, factor, *device))?;
            }
        }
        match values {
            Values::Host(means) if step.finite => step.decompress(|step| {
                let pieces = step.group.pieces();
                self.messages.average(step, Phase::Gather, factor, pieces, means)
            }),
            _ => Ok(()),
        }
    }
}

impl AllGather {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { messages: Received::new(ranks), message: Vec::new(), forms: Forms::default() }
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

    /// Adds a rank's messages, times its weight and the factor, on the device. A rank with weight 0
    /// sent nothing.
    fn add_forms(
        &mut self,
        step: &mut Reduction<'_>,
        rank: usize,
        factor: f32,
        device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        let Self { messages, forms, .. } = self;
        let sender = Sender::one_of_all(rank, step.weight(rank, factor));
        forms.clear();
        let (packed, pieces) = (&messages.from[rank], step.group.pieces());
        step.each_message(Phase::Gather, sender, packed, pieces, |step, piece, message| {
            let mut codec = step.codecs.at(&piece, step.step);
            Ok(forms.push(|form| codec.unpack(rank, message, form))?)
        })?;
        device.add(rank, sender.weight, &forms.bytes, &forms.ranges)
    }
}
