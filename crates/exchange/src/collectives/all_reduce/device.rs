//! Compression by a device: it returns messages and addends, and takes the means, as forms.

use gradwire::{Dtype, ReduceOp, Round};

use crate::collectives::collective::Reduction;
use crate::device::Forms;
use crate::mean::MeanBuffer;
use crate::{DeviceGroup, ExchangeError, Result, RoundForm};

/// Working memory of compression by a device.
#[derive(Default)]
pub(super) struct Device {
    message: Vec<u8>,
    /// The forms that the host computed for the device: for a round, or of the means.
    forms: Forms,
    /// The bytes of each tensor's form of a round, and of its addend.
    round: Vec<Option<RoundForm>>,
    /// How the addends of a round are combined.
    ops: Vec<ReduceOp>,
}

impl Device {
    pub(super) fn encode(
        &mut self,
        step: &mut Reduction<'_>,
        group: &mut dyn DeviceGroup,
        means: &mut MeanBuffer,
    ) -> Result<()> {
        let forms = group.forms()?;
        let message = &mut self.message;
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

    pub(super) fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        group: &mut dyn DeviceGroup,
        means: &mut MeanBuffer,
    ) -> Result<()> {
        let len = self.ask(step, round, means)?;
        let Self { forms, round: asked, ops, .. } = self;
        if ops.is_empty() {
            return Ok(());
        }
        let addends = group.addends(round, &forms.bytes, asked)?;
        if addends.len() != len {
            return Err(ExchangeError::config("the device returned addends of another length"));
        }
        let asked = asked.iter().enumerate().filter_map(|(at, form)| Some((at, form.as_ref()?)));
        for ((at, form), &op) in asked.zip(&*ops) {
            means.push(at, Dtype::F32, op, &addends[form.addend.clone()]);
        }
        Ok(())
    }

    pub(super) fn decode(
        &mut self,
        step: &mut Reduction<'_>,
        group: &mut dyn DeviceGroup,
        means: &mut MeanBuffer,
    ) -> Result<()> {
        self.forms.clear();
        for (at, piece) in step.group.pieces().enumerate() {
            let has_rounds = step.codecs.has_rounds(piece.tensor);
            let mut codec = step.codecs.at(&piece, step.step);
            self.forms.push(|form| match has_rounds {
                true => {
                    let bytes = means.addend_bytes(at);
                    codec.device_conclude(means.means_of(at), form, bytes)
                }
                // A mean has no single sender; a linear message does not depend on its sender.
                false => codec.unpack(0, means.message(at), form),
            })?;
        }
        group.add_means(&self.forms.bytes, &self.forms.ranges)
    }

    /// Writes the forms of a round, and returns the bytes of its addends.
    fn ask(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        means: &mut MeanBuffer,
    ) -> Result<usize> {
        let Self { forms, round: asked, ops, .. } = self;
        forms.clear();
        let forms = &mut forms.bytes;
        asked.clear();
        ops.clear();
        let mut end = 0;
        for (at, piece) in step.group.pieces().enumerate() {
            let mut form = None;
            if step.codecs.has_rounds(piece.tensor) {
                let start = forms.len();
                let mut codec = step.codecs.at(&piece, step.step);
                let found = codec.device_round(round, means.means_of(at), forms)?;
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
