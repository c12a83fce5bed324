//! The compressor behind `none`, `fp16` and `bf16`: every element, in one format.

use std::ops::Range;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::Room;

use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{
    Aggregation, Compressor, Coverage, DecodeArgs, Dtype, EncodeArgs, Properties, Statistics, Unit,
};

/// Messages of this many bytes or more are written past the caches: with the tensor they exceed a
/// last-level cache of 32 MiB. Tests take this path with small tensors.
const STREAMED: usize = if cfg!(test) { 8 << 10 } else { 16 << 20 };

/// Elements in one format, given as conversions of whole blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dense {
    /// Writes the numbers of a block into room, past the caches or not; returns the bits of the
    /// block's largest absolute value.
    pub(super) fill: fn(&[f32], Room<'_>, bool) -> u32,
    /// Adds the numbers of a message, times a weight.
    pub(super) add: fn(&[u8], f32, &mut [f32]),
    /// The element type of messages.
    pub(super) dtype: Dtype,
}

impl Dense {
    pub(super) fn properties(&self) -> Properties {
        let value_bits = Some(8 * self.dtype.size() as u32);
        Properties { value_bits, ..Properties::DEFAULT }
    }
}

impl Compressor for Dense {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let bytes = |elements: usize| self.max_len(elements);
        if source.keeps_residual() {
            source.append(workspace, message, |source, message| {
                source.take_blocks(|_, block| {
                    let (start, len) = (message.len(), bytes(block.len()));
                    Room::at_end(message, len, |room| (self.fill)(block, room, false));
                    (self.add)(&message[start..], -1.0, block);
                });
            });
        } else {
            let len = bytes(source.len());
            Room::at_end(message, len, |mut room| {
                let rooms = |part: Range<usize>| room.split_off(bytes(part.len()));
                source.in_parts(workspace, rooms, |source, mut room, _| {
                    source.convert_blocks(|block| {
                        (self.fill)(block, room.split_off(bytes(block.len())), len >= STREAMED)
                    });
                });
            });
        }
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        fields::expect_len(message, self.max_len(out.len()))?;
        let unit = Unit { items: self.dtype.size(), elements: 1 };
        workspace.helpers.add_in_parts(message, unit, out, |_, message, out| {
            (self.add)(message, weight, out);
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.saturating_mul(self.dtype.size())
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len / self.dtype.size()
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::Linear(self.dtype)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DenseForm for Dense {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        fields::expect_len(args.from, self.max_len(args.elements))?;
        copy(args.from, args.to)
    }
}

#[cfg(test)]
mod tests {
    use super::STREAMED;
    use crate::compressors::testing::encode;
    use crate::{BLOCK, Encoder, Tensor};

    /// More than a block, with a part of one at the end.
    fn large() -> Vec<f32> {
        let tensor: Vec<f32> = (0..BLOCK + 77).map(|at| at as f32 - 99.5).collect();
        assert!(2 * tensor.len() >= STREAMED);
        tensor
    }

    #[test]
    fn large_messages_are_those_of_their_blocks() {
        let tensor = large();
        for spec in ["none", "fp16", "bf16"] {
            let blocks: Vec<u8> = tensor.chunks(7).flat_map(|block| encode(spec, block)).collect();
            assert_eq!(encode(spec, &tensor), blocks, "{spec}");
        }
    }

    #[test]
    fn large_messages_are_checked() {
        let mut tensor = large();
        let shape = Tensor::new("t", &[tensor.len()]);
        for at in [0, BLOCK - 1, BLOCK + 76] {
            let before = std::mem::replace(&mut tensor[at], f32::NAN);
            for spec in ["none", "fp16", "bf16"] {
                let (mut encoder, mut message) =
                    (Encoder::new(&spec.parse().unwrap(), 0, 0), vec![7]);
                let error = encoder.encode(&shape, 0, &tensor[..], &mut message).unwrap_err();
                assert!(error.to_string().contains(&at.to_string()), "{error}");
                assert_eq!(message, [7]);
            }
            tensor[at] = before;
        }
    }
}
