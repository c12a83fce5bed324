//! Compression by this process, of values that become the means.

use gradwire::{Dtype, Floats, ReduceOp};

use super::{Rounds, Side};
use crate::collectives::Reduction;
use crate::{Result, elements};

/// Compression by this process.
pub(super) struct Host<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) buffers: &'a mut Buffers,
}

/// Working memory.
#[derive(Default)]
pub(super) struct Buffers {
    message: Vec<u8>,
    addend: Vec<f32>,
    bytes: Vec<u8>,
}

impl Side for Host<'_> {
    fn encode(&mut self, step: &mut Reduction<'_>, rounds: &mut Rounds) -> Result<()> {
        let Self { values, buffers: Buffers { message, .. } } = self;
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            if step.codecs.has_rounds(tensor) {
                continue;
            }
            step.encode(at, values, message)?;
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
        let Self { values, buffers: Buffers { addend, bytes, .. } } = self;
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            if !step.codecs.has_rounds(tensor) {
                continue;
            }
            rounds.collect(at);
            let gradient = Floats::F32(&values[step.group.ranges[at].clone()]).into();
            let Reduction { codecs, step, .. } = step;
            let op = codecs.contribute(tensor, *step, round, gradient, &rounds.means, addend)?;
            if let Some(op) = op {
                bytes.clear();
                elements::narrow_onto(addend, bytes);
                rounds.push(at, Dtype::F32, op, bytes);
            }
        }
        Ok(())
    }

    fn decode(&mut self, step: &mut Reduction<'_>, rounds: &mut Rounds) -> Result<()> {
        self.values.fill(0.0);
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            let mean = &mut self.values[step.group.ranges[at].clone()];
            if step.codecs.has_rounds(tensor) {
                rounds.collect(at);
                let (index, bytes) = (step.group.indices[at], rounds.addend_bytes(at));
                step.codecs.conclude(index, bytes, tensor, step.step, &rounds.means, mean)?;
            } else {
                // A mean has no single sender; a linear message does not depend on its sender.
                step.codecs.decode_add(tensor, step.step, 0, rounds.message(at), 1.0, mean)?;
            }
        }
        Ok(())
    }
}
