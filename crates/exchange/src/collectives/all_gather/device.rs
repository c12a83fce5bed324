//! All-gather of the messages of tensors that a device compresses.

use std::ops::Range;

use super::side::GatherSide;
use crate::codecs::Sender;
use crate::collectives::packed;
use crate::collectives::reduction::Reduction;
use crate::{DeviceGroup, Phase, Result};

/// Compression by a device.
pub(super) struct DeviceGather<'a> {
    pub(super) device: &'a mut dyn DeviceGroup,
    pub(super) message: &'a mut Vec<u8>,
    pub(super) memory: &'a mut GatheredForms,
}

/// The device forms of a rank's messages.
#[derive(Default)]
pub(super) struct GatheredForms {
    forms: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl GatherSide for DeviceGather<'_> {
    fn encode(&mut self, step: &mut Reduction<'_>, packed: &mut Vec<u8>) -> Result<()> {
        let forms = self.device.forms()?;
        packed.clear();
        for (at, range) in forms.ranges.iter().enumerate() {
            let form = &forms.bytes[range.clone()];
            step.codecs.at(&step.group.piece(at), step.step).pack(form, self.message)?;
            packed::take(self.message, packed);
        }
        Ok(())
    }

    fn add(
        &mut self,
        step: &mut Reduction<'_>,
        rank: usize,
        weight: f32,
        packed: &[u8],
    ) -> Result<()> {
        let GatheredForms { forms, ranges } = &mut *self.memory;
        forms.clear();
        ranges.clear();
        let (sender, pieces) = (Sender::one_of_all(rank, weight), step.group.pieces());
        step.each_message(Phase::Gather, sender, packed, pieces, |step, piece, message| {
            // Forms begin where numbers of four bytes may.
            forms.resize(forms.len().next_multiple_of(4), 0);
            let start = forms.len();
            step.codecs.at(&piece, step.step).unpack(rank, message, forms)?;
            ranges.push(start..forms.len());
            Ok(())
        })?;
        self.device.add(rank, weight, forms, ranges)
    }

    fn finish(&mut self, _: &mut Reduction<'_>) -> Result<()> {
        Ok(())
    }
}
