//! The compressor behind `fp16` and `bf16`: a dense message of 16-bit patterns.

use gradwire_bits::DecodeError;

use crate::device::{self, DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{Aggregation, Compressor, DecodeArgs, Dtype, EncodeArgs, Sent, Statistics};

/// Rounding to one 16-bit format, given as conversions of whole blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half {
    /// Appends patterns, rounded to nearest even and saturated; returns the bits of the largest absolute value.
    pub(super) append: fn(&[f32], &mut Vec<u8>) -> u32,
    /// Adds the numbers of little-endian patterns, times a weight.
    pub(super) add: fn(&[u8], f32, &mut [f32]),
    /// The element type of messages.
    pub(super) dtype: Dtype,
}

impl Compressor for Half {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Sent {
        let EncodeArgs { source, message, .. } = args;
        if !source.keeps_residual() {
            source.convert_blocks(|block| (self.append)(block, message));
            return Sent::All;
        }
        source.take_blocks(|_, block| {
            let start = message.len();
            (self.append)(block, message);
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

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
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
        Aggregation::Linear(self.dtype)
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
