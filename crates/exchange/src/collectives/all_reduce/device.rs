//! Compression by a device: it returns messages and addends, and takes the means, as forms.

use std::ops::Range;

use gradwire::{Dtype, ReduceOp, Round};

use super::{Rounds, Side};
use crate::collectives::Reduction;
use crate::reducer::{DeviceGroup, RoundForm};
use crate::{ExchangeError, Result};

/// Compression by a device.
pub(super) struct Device<'a> {
    pub(super) device: &'a mut dyn DeviceGroup,
    pub(super) buffers: &'a mut Buffers,
}

/// Working memory.
#[derive(Default)]
pub(super) struct Buffers {
    message: Vec<u8>,
    forms: Vec<u8>,
    /// The bytes of each tensor's form of a mean.
    ranges: Vec<Range<usize>>,
    /// The bytes of each tensor's form of a round, and of its addend.
    round: Vec<Option<RoundForm>>,
    /// How the addends of a round are combined.
    ops: Vec<ReduceOp>,
}

impl Side for Device<'_> {
    fn encode(&mut self, step: &mut Reduction<'_>, rounds: &mut Rounds) -> Result<()> {
        let forms = self.device.forms()?;
        let message = &mut self.buffers.message;
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            if step.codecs.has_rounds(tensor) {
                continue;
            }
            let form = &forms.bytes[forms.ranges[at].clone()];
            step.codecs.pack(step.group.indices[at], tensor, step.step, form, message)?;
            let dtype = step.codecs.linear(tensor).expect("the setup refuses other compressors");
            rounds.push(at, dtype, ReduceOp::Mean, message);
        }
        Ok(())
    }

    fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        rounds: &mut Rounds,
    ) -> Result<()> {
        let len = self.ask(step, round, rounds)?;
        let Buffers { forms, round: asked, ops, .. } = &mut *self.buffers;
        if ops.is_empty() {
            return Ok(());
        }
        let addends = self.device.addends(round, forms, asked)?;
        if addends.len() != len {
            return Err(ExchangeError::config("the device returned addends of another length"));
        }
        let asked = asked.iter().enumerate().filter_map(|(at, form)| Some((at, form.as_ref()?)));
        for ((at, form), &op) in asked.zip(&*ops) {
            rounds.push(at, Dtype::F32, op, &addends[form.addend.clone()]);
        }
        Ok(())
    }

    fn decode(&mut self, step: &mut Reduction<'_>, rounds: &mut Rounds) -> Result<()> {
        let Buffers { forms, ranges, .. } = &mut *self.buffers;
        forms.clear();
        ranges.clear();
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            // Forms begin where numbers of four bytes may.
            forms.resize(forms.len().next_multiple_of(4), 0);
            let start = forms.len();
            if step.codecs.has_rounds(tensor) {
                rounds.collect(at);
                let (index, bytes) = (step.group.indices[at], rounds.addend_bytes(at));
                let Reduction { codecs, step, .. } = step;
                codecs.device_conclude(index, bytes, tensor, *step, &rounds.means, forms)?;
            } else {
                // A mean has no single sender; a linear message does not depend on its sender.
                step.codecs.unpack(tensor, step.step, 0, rounds.message(at), forms)?;
            }
            ranges.push(start..forms.len());
        }
        self.device.add_means(forms, ranges)
    }
}

impl Device<'_> {
    /// Writes the forms of a round, and returns the bytes of its addends.
    fn ask(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        rounds: &mut Rounds,
    ) -> Result<usize> {
        let Buffers { forms, round: asked, ops, .. } = &mut *self.buffers;
        forms.clear();
        asked.clear();
        ops.clear();
        let mut end = 0;
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            let mut form = None;
            if step.codecs.has_rounds(tensor) {
                rounds.collect(at);
                let start = forms.len();
                let Reduction { codecs, step, .. } = step;
                let found = codecs.device_round(tensor, *step, round, &rounds.means, forms)?;
                form = found.map(|Round { len, op }| {
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
