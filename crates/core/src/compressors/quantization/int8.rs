//! `int8`: 255 evenly spaced levels, symmetric around zero.
//!
//! `step = max|c| / 127`, `q = round(c / step)` in [−127, 127] (ties to even), decoded as `q·step`.
//!
//! - **Message**: `step` as f32, then d signed bytes: 8·d + 32 bits. The byte −128 is never used.
//! - **Error**: at most half a step per element.
//! - **Error feedback**: on.
//! - **Limits**: if `1 / step` overflows (max|c| below about 4·10⁻³⁷), the step is sent as zero and
//!   the tensor stays in the residual.
//! - **Cost**: 8 bytes per element for the maximum, 13 for the levels.
//!
//! Reference: the "8-bit int" of Lim, Andersen, Kaminsky: "3LC: Lightweight and Effective Traffic
//! Compression for Distributed Machine Learning", MLSys 2019, §5.1, after Jouppi et al., ISCA 2017.

use std::sync::Arc;

use gradwire_bits::{DecodeError, kernels};

use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::wire::{fields, levels};
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes,
    Properties, Unit,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "int8",
    summary: "255 evenly spaced levels up to the largest absolute value",
    formula: "x̂ = s·round(c/s), s = max|c|/127",
    family: Family::Quantization,
    error_feedback: true,
    reference: "Lim et al., MLSys 2019, §5.1 (\"8-bit int\")",
    payload: "step f32, d × i8",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(8), ..Properties::DEFAULT },
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(Int8))
};

const LEVELS: f32 = 127.0;
const HEADER: usize = 4;

/// 8-bit quantization.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Int8;

/// Checks a message; returns its step and its levels.
fn read(mut message: &[u8], elements: usize) -> Result<(f32, &[u8]), DecodeError> {
    let step = levels::take_step(&mut message, LEVELS)?;
    fields::expect_len(message, elements)?;
    if kernels::has_byte(message, 0x80) {
        return Err(DecodeError::Corrupt("a level is -128"));
    }
    Ok((step, message))
}

impl Compressor for Int8 {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let (step, inverse) = levels::step(source.abs_max(), LEVELS);
        fields::put_f32(step, message);
        source.append(workspace, message, |source, message| {
            let mut levels = [0; BLOCK];
            if source.keeps_residual() {
                source.take_short_blocks(|_, block| {
                    let levels = &mut levels[..block.len()];
                    kernels::int8_residual(block, inverse, step, levels);
                    message.extend_from_slice(bytemuck::cast_slice(levels));
                });
            } else {
                source.peek_short_blocks(|_, block| {
                    let levels = &mut levels[..block.len()];
                    kernels::int8_levels(block, inverse, levels);
                    message.extend_from_slice(bytemuck::cast_slice(levels));
                });
            }
        });
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let (step, message) = read(message, out.len())?;
        let levels = bytemuck::cast_slice(message);
        workspace.helpers.add_in_parts(levels, Unit::ONE, out, |_, levels, out| {
            kernels::int8_add(levels, weight * step, out);
        });
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.saturating_add(HEADER)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_sub(HEADER)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DenseForm for Int8 {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        read(args.from, args.elements)?;
        copy(args.from, args.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn levels_are_whole_steps_from_zero() {
        // max 127, so the step is 1: halves go to the even level.
        let gradient = [127.0, -127.0, 0.5, 1.5, -2.25, 0.0];
        let message = encode("int8", &gradient);
        assert_eq!(message, [0, 0, 0x80, 0x3f, 127, 129, 0, 2, 254, 0]);
        assert_eq!(residual("int8", &gradient), [0.0, 0.0, 0.5, -0.5, -0.25, 0.0]);
        assert_eq!(round_trip("int8", &gradient), [127.0, -127.0, 0.0, 2.0, -2.0, 0.0]);
    }

    #[test]
    fn the_unused_level_and_bad_steps_are_corrupt() {
        for bytes in [[0, 0, 0x80, 0x3f, 0x80], [0, 0, 0x80, 0xbf, 1], [0, 0, 0x80, 0x7f, 1]] {
            assert!(matches!(refused("int8", 1, &bytes), DecodeError::Corrupt(_)));
        }
    }

    #[test]
    fn the_ends_of_the_range_stay_finite() {
        assert!(round_trip("int8", &[f32::MAX, f32::MIN]).iter().all(|x| x.is_finite()));
        let tiny = [f32::from_bits(1), -f32::from_bits(9)];
        assert_eq!(round_trip("int8", &tiny), [0.0, 0.0]);
        assert_eq!(residual("int8", &tiny), tiny);
    }
}
