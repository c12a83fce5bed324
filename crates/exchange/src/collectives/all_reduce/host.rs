//! Compression by this process; the means replace the values.

use gradwire::{Dtype, Floats};

use crate::codecs::Sender;
use crate::collectives::collective::Reduction;
use crate::group::Piece;
use crate::mean::MeanBuffer;
use crate::{Result, elements};

/// Working memory of compression by this process.
#[derive(Default)]
pub(super) struct Host {
    addend: Vec<f32>,
    bytes: Vec<u8>,
}

impl Host {
    pub(super) fn encode(
        step: &mut Reduction<'_>,
        values: &[f32],
        means: &mut MeanBuffer,
    ) -> Result<()> {
        let group = step.group;
        let bytes_of = |piece: Piece<'_>| {
            let dtype = step.codecs.linear(piece.tensor)?;
            Some(piece.range.len() * dtype.size())
        };
        means.reserve(group.pieces().filter_map(bytes_of).sum());
        for (at, piece) in group.pieces().enumerate() {
            if step.codecs.has_rounds(piece.tensor) {
                continue;
            }
            let dtype =
                step.codecs.linear(piece.tensor).expect("the setup refuses other compressors");
            means.push_message(at, dtype, |bytes| step.append(&piece, values, bytes))?;
        }
        Ok(())
    }

    pub(super) fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        values: &[f32],
        means: &mut MeanBuffer,
    ) -> Result<()> {
        let Self { addend, bytes, .. } = self;
        for (at, piece) in step.group.pieces().enumerate() {
            if !step.codecs.has_rounds(piece.tensor) {
                continue;
            }
            let gradient = Floats::F32(&values[piece.range.clone()]).into();
            let mut codec = step.codecs.at(&piece, step.step);
            if let Some(op) = codec.round(round, gradient, means.means_of(at), addend)? {
                bytes.clear();
                elements::narrow_onto(addend, bytes);
                means.push(at, Dtype::F32, op, bytes);
            }
        }
        Ok(())
    }
}

pub(super) fn decode(
    step: &mut Reduction<'_>,
    values: &mut [f32],
    means: &mut MeanBuffer,
) -> Result<()> {
    values.fill(0.0);
    let mut tensors = step.group.tensors.iter();
    let in_rounds = tensors.any(|tensor| step.codecs.has_rounds(tensor));
    let weight = if in_rounds { 1.0 } else { step.take_factor() };
    for (at, piece) in step.group.pieces().enumerate() {
        let out = &mut values[piece.range.clone()];
        let has_rounds = step.codecs.has_rounds(piece.tensor);
        let mut codec = step.codecs.at(&piece, step.step);
        if has_rounds {
            let bytes = means.addend_bytes(at);
            codec.conclude(means.means_of(at), out, bytes)?;
        } else {
            // A mean has no single sender; a linear message does not depend on its sender.
            codec.add(Sender { weight, ..Sender::alone(0) }, means.message(at), out)?;
        }
    }
    Ok(())
}
