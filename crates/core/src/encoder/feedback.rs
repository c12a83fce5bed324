//! The sending end of methods with [feedback](crate::Feedback) of their own.

use super::{Encoder, Kept, of_tensor, own_of};
use crate::source::add_saturating;
use crate::{Encoded, Error, Floats, Input, Memory, Sent, Source, Tensor};

/// Buffers of the largest tensor's size, reused from tensor to tensor.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// A 16-bit gradient, widened.
    gradient: Vec<f32>,
    compensated: Vec<f32>,
    /// What the message fails to carry.
    left: Vec<f32>,
    /// The memory that comes next, until it is known to be finite.
    memory: Vec<f32>,
    /// What the method keeps beside it, as it was before.
    kept: Vec<f32>,
}

impl Encoder {
    /// The method's own φ and ψ, where they are in force: with error feedback, and not where the
    /// [plain residual](Self::with_plain_memory) is in its place.
    pub(super) fn has_feedback(&self, name: &str) -> bool {
        let own = self.compressor_of(name).feedback();
        !self.plain && self.spec_of(name).memory().is_on() && own.is_some()
    }

    /// Encodes φ(m, g) as a tensor of its own, and makes ψ of it the memory.
    pub(super) fn encode_with_feedback(
        &mut self,
        tensor: &Tensor,
        step: u64,
        Input { gradient, squares }: Input<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, Error> {
        let non_finite = |at| Error::non_finite(tensor.name(), at);
        let context = self.context(tensor, step);
        let Self { codecs, tensors, workspace, scratch, spare, .. } = self;
        let entry = tensors.get_mut(tensor.name()).expect("every tensor in hand has an entry");
        let compressor = &codecs.get(entry.codec).compressor;
        let feedback = compressor.feedback().expect("the method has feedback");
        let Kept { residual, own, .. } = &mut entry.kept;
        let memory = of_tensor(residual, "residual", tensor)?;
        let kept = own_of(&**compressor, own, tensor)?;
        let Spare { gradient: widened, compensated, left, memory: next, kept: before } = spare;

        let gradient = widen(gradient, widened);
        Source::new(Floats::F32(gradient), Memory::None, None, scratch).map_err(non_finite)?;
        zeros(compensated, gradient.len());
        feedback.compensate(memory, gradient, &context, compensated);
        zeros(left, gradient.len());
        let source =
            Source::new(Floats::F32(compensated), Memory::RESIDUAL, Some(&mut *left), scratch)
                .map_err(non_finite)?;

        copy(before, kept);
        if compressor.keeps_squares() {
            match squares {
                Some(squares) => add_saturating(squares.iter().copied(), kept),
                None => add_saturating(gradient.iter().map(|g| g * g), kept),
            }
        }
        let start = message.len();
        let sent =
            compressor.encode(&mut source.with_kept(&mut *kept), &context, workspace, message);

        let positions = (sent == Sent::Positions).then_some(workspace.positions.as_slice());
        copy(next, memory);
        feedback.update(next, &Encoded { gradient, compensated, left, positions }, &context);
        if let Err(at) = Source::new(Floats::F32(next), Memory::None, None, scratch) {
            kept.copy_from_slice(before);
            message.truncate(start);
            return Err(non_finite(at));
        }
        memory.copy_from_slice(next);
        Ok(sent)
    }
}

/// A gradient as `f32`: itself, or converted into `widened`.
fn widen<'a>(gradient: Floats<'a>, widened: &'a mut Vec<f32>) -> &'a [f32] {
    if let Floats::F32(gradient) = gradient {
        return gradient;
    }
    widened.resize(gradient.len(), 0.0);
    gradient.block(0, widened)
}

fn zeros(values: &mut Vec<f32>, len: usize) {
    values.clear();
    values.resize(len, 0.0);
}

fn copy(values: &mut Vec<f32>, of: &[f32]) {
    values.clear();
    values.extend_from_slice(of);
}
