//! Compression by a device: it returns messages and addends, and takes the means, as forms.

use std::ops::Range;

use gradwire::{Dtype, ReduceOp};

use super::side::ReduceSide;
use crate::collectives::reduction::Reduction;
use crate::mean::MeanBuffer;
use crate::{DeviceGroup, ExchangeError, Result, RoundForm};

/// Compression by a device.
pub(super) struct DeviceReduce<'a> {
    pub(super) device: &'a mut dyn DeviceGroup,
    pub(super) memory: &'a mut DeviceMemory,
}

/// Working memory of [`DeviceReduce`].
#[derive(Default)]
pub(super) struct DeviceMemory {
    message: Vec<u8>,
    forms: Vec<u8>,
    /// The bytes of each tensor's form of a mean.
    ranges: Vec<Range<usize>>,
    /// The bytes of each tensor's form of a round, and of its addend.
    round: Vec<Option<RoundForm>>,
    /// How the addends of a round are combined.
    ops: Vec<ReduceOp>,
}

impl ReduceSide for DeviceReduce<'_> {
    fn encode(&mut self, step: &mut Reduction<'_>, means: &mut MeanBuffer) -> Result<()> {
        let forms = self.device.forms()?;
        let message = &mut self.memory.message;
        for (at, piece) in step.group.pieces().enumerate() {
            if step.codecs.has_rounds(piece.tensor) {
                continue;
            }
            let form = &forms.bytes[forms.ranges[at].clone()];
            step.codecs.at(&piece, step.step).pack(form, message)?;
            let dtype =
                step.codecs.linear(piece.tensor).expect("the setup refuses other compressors");
            means.push(at, dtype, ReduceOp::Mean, message);
        }
        Ok(())
    }

    fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        means: &mut MeanBuffer,
    ) -> Result<()> {
        let len = self.ask(step, round, means)?;
        let DeviceMemory { forms, round: asked, ops, .. } = &mut *self.memory;
        if ops.is_empty() {
            return Ok(());
        }
        let addends = self.device.addends(round, forms, asked)?;
        if addends.len() != len {
            return Err(ExchangeError::config("the device returned addends of another length"));
        }
        let asked = asked.iter().enumerate().filter_map(|(at, form)| Some((at, form.as_ref()?)));
        for ((at, form), &op) in asked.zip(&*ops) {
            means.push(at, Dtype::F32, op, &addends[form.addend.clone()]);
        }
        Ok(())
    }

    fn decode(&mut self, step: &mut Reduction<'_>, means: &mut MeanBuffer) -> Result<()> {
        let DeviceMemory { forms, ranges, .. } = &mut *self.memory;
        forms.clear();
        ranges.clear();
        for (at, piece) in step.group.pieces().enumerate() {
            // Forms begin where numbers of four bytes may.
            forms.resize(forms.len().next_multiple_of(4), 0);
            let start = forms.len();
            let has_rounds = step.codecs.has_rounds(piece.tensor);
            let mut codec = step.codecs.at(&piece, step.step);
            if has_rounds {
                let bytes = means.addend_bytes(at);
                codec.device_conclude(means.means_of(at), forms, bytes)?;
            } else {
                // A mean has no single sender; a linear message does not depend on its sender.
                codec.unpack(0, means.message(at), forms)?;
            }
            ranges.push(start..forms.len());
        }
        self.device.add_means(forms, ranges)
    }
}

impl DeviceReduce<'_> {
    /// Writes the forms of a round, and returns the bytes of its addends.
    fn ask(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        means: &mut MeanBuffer,
    ) -> Result<usize> {
        let DeviceMemory { forms, round: asked, ops, .. } = &mut *self.memory;
        forms.clear();
        asked.clear();
        ops.clear();
        let mut end = 0;
        for (at, piece) in step.group.pieces().enumerate() {
            let mut form = None;
            if step.codecs.has_rounds(piece.tensor) {
                let start = forms.len();
                let mut codec = step.codecs.at(&piece, step.step);
                let found = codec.device_round(round, means.means_of(at), forms)?;
                form = found.map(|(len, op)| {
                    let first = end;
                    end += 4 * len;
                    ops.push(op);
                    RoundForm { form: start..forms.len(), addend: first..end }
                });
            }
            asked.push(form);
        }
        Ok(end)
    }
}
