//! `none`: every element as it is.
//!
//! - **Message**: d little-endian binary32 numbers, 32·d bits.
//! - **Aggregation**: linear; the elementwise mean of messages is the message of the mean.
//! - **Error feedback**: off. With it, the residual stays zero, because nothing is lost.
//! - **Cost**: one pass, 8 bytes per element.

use std::sync::Arc;

use gradwire_bits::{DecodeError, kernels};

use crate::device::{self, DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{
    Aggregation, Compressor, DecodeArgs, Dtype, EncodeArgs, Entry, Family, Sent, Statistics,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "none",
    summary: "32-bit floats, uncompressed",
    formula: "x̂ = c",
    family: Family::Baseline,
    reference: "the baseline of every comparison",
    payload: "d × f32",
    unbiased: true,
    lossless: true,
    ..Entry::new(&[], |_| Arc::new(Uncompressed))
};

/// Messages of this many bytes or more are written past the caches: together with the tensor they exceed a last-level
/// cache of 32 MiB. Tests take this path with small tensors.
const STREAMED: usize = if cfg!(test) { 16 << 10 } else { 16 << 20 };

/// The identity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Uncompressed;

impl Compressor for Uncompressed {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Sent {
        let EncodeArgs { source, message, .. } = args;
        if source.keeps_residual() {
            source.take_blocks(|_, block| {
                fields::put_f32s(block, message);
                block.fill(0.0);
            });
        } else if self.max_len(source.len()) >= STREAMED {
            source.convert_blocks(|block| kernels::f32_append_streamed(block, message));
        } else {
            source.peek_blocks(|_, block| fields::put_f32s(block, message));
        }
        Sent::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, out, .. } = args;
        fields::expect_len(message, self.max_len(out.len()))?;
        kernels::f32_add(message, weight, out);
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn value_bits(&self) -> Option<u32> {
        Some(32)
    }

    fn is_contractive(&self) -> bool {
        true
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.saturating_mul(4)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len / 4
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::Linear(Dtype::F32)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DeviceForm for Uncompressed {
    fn pack(
        &self,
        form: &[u8],
        args: DeviceArgs<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, DecodeError> {
        fields::expect_len(form, args.elements.saturating_mul(4))?;
        device::copy(form, message)?;
        Ok(Sent::All)
    }

    fn unpack(
        &self,
        message: &[u8],
        args: DeviceArgs<'_>,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        fields::expect_len(message, args.elements.saturating_mul(4))?;
        device::copy(message, form)
    }
}

#[cfg(test)]
mod tests {
    use super::STREAMED;
    use crate::compressors::testing::{encode, round_trip};
    use crate::{BLOCK, Encoder, Floats, Spec, Tensor};

    #[test]
    fn the_message_is_the_tensor() {
        assert_eq!(encode("none", &[1.0, -2.0]), [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(round_trip("none", &[1.0, -2.0]), [1.0, -2.0]);
        assert!(encode("none", &[]).is_empty());
    }

    #[test]
    fn large_messages_are_streamed_and_checked() {
        // More than a block, with a part of one at the end.
        let mut tensor: Vec<f32> = (0..BLOCK + 77).map(|at| at as f32 - 99.5).collect();
        assert!(4 * tensor.len() >= STREAMED);
        let bytes: Vec<u8> = tensor.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(encode("none", &tensor), bytes);
        for at in [0, BLOCK - 1, BLOCK + 76] {
            let before = std::mem::replace(&mut tensor[at], f32::NAN);
            let spec: Spec = "none".parse().unwrap();
            let (mut encoder, mut message) = (Encoder::new(&spec, 0, 0), Vec::new());
            let shape = Tensor::new("t", &[tensor.len()]);
            let error = encoder.encode(&shape, 0, Floats::F32(&tensor), &mut message).unwrap_err();
            assert!(error.to_string().contains(&at.to_string()), "{error}");
            assert!(message.is_empty());
            tensor[at] = before;
        }
    }
}
