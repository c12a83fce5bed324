//! The compressor behind `fp16` and `bf16`: a dense message of 16-bit patterns.

use gradwire_bits::DecodeError;

use crate::device::{self, DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{Aggregation, Compressor, DecodeArgs, Element, EncodeArgs, Sent};

/// Elements that are converted at once: few, so that the first-level cache has room for the block and its message.
const PART: usize = 1024;

/// Rounding to one 16-bit format, given as conversions of whole blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half {
    /// Rounds to nearest even and saturates.
    pub(super) narrow: fn(&[f32], &mut [u16]),
    /// Adds the numbers of little-endian patterns, times a weight.
    pub(super) add: fn(&[u8], f32, &mut [f32]),
    /// The element type of messages.
    pub(super) element: Element,
}

impl Compressor for Half {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Sent {
        let EncodeArgs { source, message, .. } = args;
        let mut patterns = [0; PART];
        let mut put = |block: &[f32], message: &mut Vec<u8>| {
            for part in block.chunks(PART) {
                let patterns = &mut patterns[..part.len()];
                (self.narrow)(part, patterns);
                fields::put_u16s(patterns, message);
            }
        };
        if !source.keeps_residual() {
            source.peek_blocks(|_, block| put(block, message));
            return Sent::All;
        }
        source.take_blocks(|_, block| {
            let start = message.len();
            put(block, message);
            (self.add)(&message[start..], -1.0, block);
        });
        Sent::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, out, .. } = args;
        fields::expect_len(message, out.len().saturating_mul(2))?;
        (self.add)(message, weight, out);
        Ok(())
    }

    fn one_pass(&self) -> bool {
        true
    }

    fn value_bits(&self) -> Option<u32> {
        Some(16)
    }

    fn is_contractive(&self) -> bool {
        true
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.saturating_mul(2)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len / 2
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::Linear(self.element)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DeviceForm for Half {
    fn pack(
        &self,
        form: &[u8],
        args: DeviceArgs<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, DecodeError> {
        fields::expect_len(form, args.elements.saturating_mul(2))?;
        device::copy(form, message)?;
        Ok(Sent::All)
    }

    fn unpack(
        &self,
        message: &[u8],
        args: DeviceArgs<'_>,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        fields::expect_len(message, args.elements.saturating_mul(2))?;
        device::copy(message, form)
    }
}
