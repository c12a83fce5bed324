//! Messages of block-scaled formats: a byte for the scale of each block, then the codes of all
//! elements.

use std::ops::Range;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, BlockScaled};

use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::parts::{SHORT, cut_mut};
use crate::wire::fields;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Helpers, Properties, Source, Statistics, Unit,
    Workspace,
};

/// The properties of a format.
pub(super) fn properties(format: BlockScaled) -> Properties {
    let value_bits = Some(format.bits() as u32);
    Properties { value_bits, ..Properties::DEFAULT }
}

/// The bytes of scales and codes.
pub(super) fn len(format: BlockScaled, elements: usize) -> usize {
    elements.div_ceil(format.block()) + code_bytes(format, elements)
}

/// At most as many elements have a scale and codes of this many bytes.
pub(super) fn max_elements(format: BlockScaled, bytes: usize) -> usize {
    bytes.saturating_mul(8 / format.bits())
}

fn code_bytes(format: BlockScaled, elements: usize) -> usize {
    if format.bits() == 8 { elements } else { elements.div_ceil(2) }
}

/// The scales of all blocks, which precede the codes in the message.
#[derive(Debug, Default)]
struct Scales(Vec<u8>);

/// Appends scales and codes.
pub(super) fn append(
    format: BlockScaled,
    source: &mut Source<'_>,
    workspace: &mut Workspace,
    message: &mut Vec<u8>,
) {
    let Scales(mut scales) = std::mem::take(workspace.own());
    scales.resize(source.len().div_ceil(format.block()), 0);
    let start = message.len();
    message.resize(start + scales.len(), 0);
    let mut rest = &mut scales[..];
    let of_part = |part: Range<usize>| cut_mut(&mut rest, part.len().div_ceil(format.block()));
    let work = |source: &mut Source<'_>, mut scales, message: &mut Vec<u8>, _: &mut _| {
        let mut codes = [0; SHORT];
        source.take_short_blocks(|_, values| {
            let codes = &mut codes[..code_bytes(format, values.len())];
            let scales = cut_mut(&mut scales, values.len().div_ceil(format.block()));
            kernels::blocks_residual(values, format, scales, codes);
            message.extend_from_slice(codes);
        });
    };
    source.append_in_parts(format.block(), workspace, message, of_part, work);
    message[start..][..scales.len()].copy_from_slice(&scales);
    *workspace.own() = Scales(scales);
}

/// Checks scales and codes, and separates them.
pub(super) fn view(
    format: BlockScaled,
    mut bytes: &[u8],
    elements: usize,
) -> Result<(&[u8], &[u8]), DecodeError> {
    let scales = fields::take(&mut bytes, elements.div_ceil(format.block()))?;
    fields::expect_len(bytes, code_bytes(format, elements))?;
    if kernels::max_byte(scales) > format.largest_scale() {
        return Err(DecodeError::Corrupt("a scale is too large"));
    }
    if format.bits() == 8 && kernels::max_without_sign(bytes) > format.largest_code() {
        return Err(DecodeError::Corrupt("an element is not finite"));
    }
    match bytes.last() {
        Some(byte) if format.bits() == 4 && elements % 2 == 1 && byte >> 4 != 0 => {
            Err(DecodeError::Corrupt("the padding after the last element is not zero"))
        }
        _ => Ok((scales, bytes)),
    }
}

/// Adds `weight` times the elements of checked scales and codes.
pub(super) fn add(
    format: BlockScaled,
    (scales, codes): (&[u8], &[u8]),
    weight: f32,
    out: &mut [f32],
    helpers: &mut Helpers,
) {
    let block = format.block();
    let unit = Unit { items: code_bytes(format, block), elements: block };
    helpers.add_in_parts(codes, unit, out, |first, codes, out| {
        let scales = &scales[first / block..][..out.len().div_ceil(block)];
        kernels::blocks_add(scales, codes, format, weight, out);
    });
}

/// A format whose scales are powers of two, so blocks do not depend on each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Microscaling(pub(super) BlockScaled);

impl Compressor for Microscaling {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        append(self.0, source, workspace, message);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let blocks = view(self.0, message, out.len())?;
        add(self.0, blocks, weight, out, &mut workspace.helpers);
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn max_len(&self, elements: usize) -> usize {
        len(self.0, elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        max_elements(self.0, message_len)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DenseForm for Microscaling {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        view(self.0, args.from, args.elements)?;
        copy(args.from, args.to)
    }
}
