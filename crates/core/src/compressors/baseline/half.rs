//! The compressor behind `fp16` and `bf16`: a dense message of 16-bit patterns.

use gradwire_bits::{DecodeError, kernels, try_resize};

use crate::device::{self, DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{Aggregation, BLOCK, Compressor, DecodeArgs, Element, EncodeArgs, Sent};

/// Rounding to one 16-bit format, given as conversions of whole blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Half {
    /// Rounds to nearest even and saturates.
    pub(super) narrow: fn(&[f32], &mut [u16]),
    /// The exact conversion back.
    pub(super) widen: fn(&[u16], &mut [f32]),
    /// The element type of messages.
    pub(super) element: Element,
}

impl Compressor for Half {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Sent {
        let EncodeArgs { source, workspace, message, .. } = args;
        let mut patterns = [0; BLOCK];
        if !source.keeps_residual() {
            source.peek_blocks(|_, block| {
                let patterns = &mut patterns[..block.len()];
                (self.narrow)(block, patterns);
                fields::put_u16s(patterns, message);
            });
            return Sent::All;
        }
        workspace.block.resize(BLOCK, 0.0);
        source.take_blocks(|_, block| {
            let patterns = &mut patterns[..block.len()];
            (self.narrow)(block, patterns);
            fields::put_u16s(patterns, message);
            let decoded = &mut workspace.block[..block.len()];
            (self.widen)(patterns, decoded);
            kernels::add_scaled(block, decoded, -1.0);
        });
        Sent::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        fields::expect_len(message, out.len().saturating_mul(2))?;
        try_resize(&mut workspace.block, BLOCK, 0.0)?;
        let mut patterns = [0; BLOCK];
        for (out, bytes) in out.chunks_mut(BLOCK).zip(message.chunks(2 * BLOCK)) {
            let (patterns, values) =
                (&mut patterns[..out.len()], &mut workspace.block[..out.len()]);
            fields::read_u16s(bytes, patterns);
            (self.widen)(patterns, values);
            kernels::add_scaled(out, values, weight);
        }
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
