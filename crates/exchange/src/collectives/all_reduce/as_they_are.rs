//! Values that are sent as they are.

use bytemuck::cast_slice;
use gradwire::{Dtype, Error};
use gradwire_bits::kernels;

use crate::collectives::collective::Reduction;
use crate::mean::ARE_MESSAGES;
use crate::{Result, elements};

/// Whether the `f32` values of all tensors are their messages, and all ranks count equally.
pub(super) fn travel(step: &Reduction<'_>) -> bool {
    let mut indices = step.group.indices.iter();
    ARE_MESSAGES
        && step.equal
        && step.group.dtype == Dtype::F32
        && indices.all(|&index| step.codecs.sends_gradients(index))
}

/// Refuses little-endian values that are not finite, and records that all of them are sent.
pub(super) fn check(step: &mut Reduction<'_>, values: &[u8]) -> Result<()> {
    let dtype = step.group.dtype;
    let size = dtype.size();
    for piece in step.group.pieces() {
        let values = &values[size * piece.range.start..size * piece.range.end];
        if let Some((index, value)) = first_non_finite(values, dtype) {
            let tensor = piece.tensor.name().to_owned();
            return Err(Error::NonFinite { tensor, index, value }.into());
        }
        step.codecs.note_raw(piece.index, values.len());
    }
    Ok(())
}

/// The first value that is not finite, and its index.
fn first_non_finite(values: &[u8], dtype: Dtype) -> Option<(usize, f32)> {
    if dtype == Dtype::F32 {
        let values: &[f32] = cast_slice(values);
        if f32::from_bits(kernels::abs_max_bits(values)).is_finite() {
            return None;
        }
        return values.iter().copied().enumerate().find(|(_, value)| !value.is_finite());
    }
    if elements::are_finite(cast_slice(values), dtype) {
        return None;
    }
    let mut wide = Vec::new();
    elements::widen(values, dtype, &mut Vec::new(), &mut wide);
    wide.into_iter().enumerate().find(|(_, value)| !value.is_finite())
}
