//! `nvfp4`: 4-bit floats in blocks of 16 with an 8-bit float as their scale (NVIDIA's NVFP4).
//!
//! The scale of the tensor is `t = max|c| / 2688`, with 2688 = 6·448. The scale of a block is `s`,
//! `max|c| / (6·t)` of the block rounded to E4M3. An element `q` is the nearest to `c·(1 / (t·s))`
//! of 0, ±½, ±1, ±1½, ±2, ±3, ±4 and ±6 (E2M1), decoded as `q·(t·s)`. Each operation is rounded to
//! binary32; ties go to the even mantissa. The tensor is cut in row-major order, and the last block
//! may be shorter.
//!
//! - **Message**: `t` as f32, then `s` of each block as a byte, then the codes of the elements,
//!   two to a byte, the first in the low half: 4.5·d + 32 bits. An odd last element shares its
//!   byte with a 0.
//! - **Error**: about a quarter of the element from `t·s` on, and a quarter of `t·s` below it.
//! - **Error feedback**: on.
//! - **Limits**: a block sends zeros if its largest element is at most 1/458752 of the tensor's,
//!   because `s` is then 0, or if `1 / (t·s)` overflows (`t·s` below about 3·10⁻³⁹). Zeros
//!   keep their sign.
//! - **Deviations**: Transformer Engine offers a random Hadamard transform, blocks of two
//!   dimensions and stochastic rounding for training; they are not here.
//! - **Cost**: 8 bytes per element for the maximum, 12 to quantize.
//!
//! Reference: NVIDIA: "Pretraining Large Language Models with NVFP4", arXiv:2509.25149, 2025,
//! appendix.

use std::sync::Arc;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::BlockScaled;

use super::block_scaled;
use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "nvfp4",
    summary: "4-bit floats in blocks of 16 with an 8-bit float as their scale",
    formula: "x̂ = t·s·(c/(t·s) rounded to E2M1), s = max|c|/(6·t) of the block rounded to E4M3, t = max|c|/2688 of the tensor",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["ef=off"],
    reference: "NVIDIA, arXiv:2509.25149",
    payload: "scale f32, for each block of 16 a scale E4M3, d × FP4",
    passes: Passes::TWO,
    properties: |_| block_scaled::properties(format(1.0)),
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(Nvfp4))
};

/// The largest element times the largest scale of a block.
const LARGEST: f32 = 6.0 * 448.0;
const HEADER: usize = 4;

/// The greatest scale of a tensor. No element overflows.
const MOST: f32 = f32::MAX / LARGEST;

/// 4-bit floats in blocks, with a scale of the tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nvfp4;

fn format(scale: f32) -> BlockScaled {
    BlockScaled::Nvfp4 { scale }
}

/// The format, and the bytes of a checked message behind the scale of the tensor.
type View<'a> = (BlockScaled, (&'a [u8], &'a [u8]));

/// Checks a message.
fn view(mut message: &[u8], elements: usize) -> Result<View<'_>, DecodeError> {
    let scale = fields::take_scale(&mut message)?;
    if scale > MOST {
        return Err(DecodeError::Corrupt("the scale is too large"));
    }
    Ok((format(scale), block_scaled::view(format(scale), message, elements)?))
}

impl Compressor for Nvfp4 {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let scale = source.abs_max() / LARGEST;
        fields::put_f32(scale, message);
        block_scaled::append(format(scale), source, workspace, message);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let (format, blocks) = view(message, out.len())?;
        block_scaled::add(format, blocks, weight, out, &mut workspace.helpers);
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        HEADER.saturating_add(block_scaled::len(format(1.0), elements))
    }

    fn max_elements(&self, message_len: usize) -> usize {
        block_scaled::max_elements(format(1.0), message_len.saturating_sub(HEADER))
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DenseForm for Nvfp4 {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        view(args.from, args.elements)?;
        copy(args.from, args.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn blocks_by_hand() {
        // Two blocks, the second of three elements; the largest is 2688, so t is 1. In the first
        // block s is 448, code 0x7e: 2688 is 6, code 7; −1120 is −2.5 and becomes −2, code 8 + 4.
        // In the second, 10 / 6 is between 1.625 and 1.75, s is 1.625, code 7·8 + 5: 10 is 6.15 and
        // becomes 6; −1 is −0.62 and becomes −0.5.
        let mut gradient = [0.0; 19];
        (gradient[0], gradient[15]) = (2688.0, -1120.0);
        gradient[16..].copy_from_slice(&[10.0, -1.0, -0.0]);
        let mut expected = [0; 4 + 2 + 10];
        expected[..6].copy_from_slice(&[0, 0, 0x80, 0x3f, 0x7e, 0x3d]);
        (expected[6], expected[13]) = (0x07, 0xc0);
        expected[14..].copy_from_slice(&[0x97, 0x08]);
        assert_eq!(encode("nvfp4:ef=off", &gradient), expected);
        let left = residual("nvfp4", &gradient);
        assert_eq!((left[0], left[15]), (0.0, -1120.0 + 2.0 * 448.0));
        assert_eq!(left[16..], [10.0 - 6.0 * 1.625, -1.0 + 0.5 * 1.625, 0.0]);
        assert_eq!(round_trip("nvfp4", &gradient)[16..], [9.75, -0.8125, 0.0]);
        assert_eq!(encode("nvfp4", &[]), [0; 4]);
    }

    #[test]
    fn small_blocks_are_zeros() {
        let mut gradient = [0.0; 33];
        (gradient[0], gradient[16], gradient[32]) = (458_752.0, 1.0, 1.001);
        let message = encode("nvfp4", &gradient);
        assert_eq!(message[4..7], [0x7e, 0, 1]);
        let left = residual("nvfp4", &gradient);
        assert_eq!(left[16], 1.0);
        assert!(left[32].abs() < 0.3);
    }

    #[test]
    fn the_ends_of_the_range_stay_finite() {
        assert!((6.0 * (448.0 * MOST)).is_finite());
        let top = [f32::MAX, f32::MIN, f32::MAX.next_down(), f32::MAX / 1.7];
        assert!(round_trip("nvfp4", &top).iter().all(|x| x.is_finite()));
        assert!(round_trip("nvfp4", &top)[0] > 0.999_999 * f32::MAX);
        assert!(residual("nvfp4", &top).iter().all(|x| x.is_finite()));
        let tiny = [f32::from_bits(1), -f32::from_bits(9_000)];
        assert_eq!(round_trip("nvfp4", &tiny), [0.0, 0.0]);
        assert_eq!(residual("nvfp4", &tiny), tiny);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let message = |scale: f32, rest: &[u8]| [&scale.to_le_bytes(), rest].concat();
        let corrupt = |bytes: &[u8]| {
            assert!(matches!(refused("nvfp4", 3, bytes), DecodeError::Corrupt(_)), "{bytes:x?}");
        };
        assert_eq!(refused("nvfp4", 3, &[0, 0, 0]), DecodeError::Truncated);
        assert_eq!(refused("nvfp4", 3, &message(1.0, &[1, 1])), DecodeError::Truncated);
        let longer = refused("nvfp4", 3, &message(1.0, &[1, 1, 1, 1]));
        assert_eq!(longer, DecodeError::Trailing { extra: 1 });
        corrupt(&message(-1.0, &[1, 1, 1]));
        corrupt(&message(f32::INFINITY, &[1, 1, 1]));
        corrupt(&message(MOST.next_up(), &[1, 1, 1]));
        corrupt(&message(1.0, &[0x7f, 1, 1]));
        corrupt(&message(1.0, &[0x81, 1, 1]));
        corrupt(&message(1.0, &[1, 1, 0x11]));
    }
}
