//! `none`: every element as it is.
//!
//! - **Message**: d little-endian binary32 numbers, 32·d bits.
//! - **Aggregation**: linear; the elementwise mean of messages is the message of the mean.
//! - **Error feedback**: off; there is nothing to feed back. With it, the residual stays zero.
//! - **Cost**: one pass, 8 bytes an element.

use std::sync::Arc;

use gradwire_bits::{DecodeError, kernels};

use crate::wire::fields;
use crate::{
    BLOCK, Compressor, Context, Element, Entry, Family, Guarantees, Sent, Source, Workspace,
};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    id: "none",
    summary: "32-bit floats, uncompressed",
    formula: "x̂ = c",
    family: Family::Baseline,
    sparse: false,
    error_feedback: false,
    parameters: &[],
    examples: &[],
    reference: "the baseline of every comparison",
    payload: "d × f32",
    guarantees: Guarantees { unbiased: true, lossless: true },
    build: |_| Arc::new(Uncompressed),
};

/// The identity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Uncompressed;

impl Compressor for Uncompressed {
    fn encode(
        &self,
        source: &mut Source<'_>,
        _: &Context<'_>,
        _: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Sent {
        source.take_blocks(|_, block| {
            fields::put_f32s(block, message);
            block.fill(0.0);
        });
        Sent::All
    }

    fn decode_add(
        &self,
        message: &[u8],
        _: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        fields::expect_len(message, self.max_len(out.len()))?;
        workspace.block.resize(BLOCK, 0.0);
        for (out, bytes) in out.chunks_mut(BLOCK).zip(message.chunks(4 * BLOCK)) {
            let values = &mut workspace.block[..out.len()];
            fields::read_f32s(bytes, values);
            kernels::add_scaled(out, values, weight);
        }
        Ok(())
    }

    fn value_bits(&self) -> Option<u32> {
        Some(32)
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.saturating_mul(4)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len / 4
    }

    fn linear(&self) -> Option<Element> {
        Some(Element::F32)
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{decode, encode};

    #[test]
    fn the_message_is_the_tensor() {
        assert_eq!(encode("none", &[1.0, -2.0]), [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert!(encode("none", &[]).is_empty());
    }

    #[test]
    fn decoding_scales_and_adds() {
        let mut out = [1.0, 1.0];
        decode("none", &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], 0.5, &mut out).unwrap();
        assert_eq!(out, [1.5, 0.0]);
    }
}
