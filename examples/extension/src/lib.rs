//! Scaled sign: the sign of every element, and the mean of the absolute values. It is the
//! compressor of `docs/adding-a-compressor.md`, in a crate of its own.

use std::ops::Bound::Included;

use gradwire::parameters::{Parameters, real};
use gradwire::{
    Compressor, Coverage, DecodeArgs, DecodeError, EncodeArgs, Entry, Family, Guarantee,
};

/// The declaration that gradwire's registry takes.
pub static ENTRY: Entry = Entry {
    id: "acme/scaled-sign",
    summary: "the sign of every element, times the mean absolute value",
    formula: "x̂ = sign(c)·gain·‖c‖₁/d",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["gain=2"],
    reference: "Karimireddy et al., ICML 2019",
    payload: "mean f32, d bits",
    ..Entry::of::<ScaledSign>(|values| match ScaledSign::new(values).gain {
        1.0 => Guarantee::Contractive,
        _ => Guarantee::Neither("the gain changes the size of the decoded tensor"),
    })
};

gradwire::parameters! {
    /// Signs with one mean.
    pub struct ScaledSign {
        /// multiplies the mean
        gain: f32 = real(1.0, Included(0.5), Included(8.0)),
    }
}

impl Compressor for ScaledSign {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, message, .. } = args;
        let mut sum = 0f64;
        source.peek_blocks(|_, block| {
            sum += block.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        });
        let mean = (self.gain * (sum / source.len().max(1) as f64) as f32).min(f32::MAX);
        message.extend_from_slice(&mean.to_le_bytes());
        source.take_blocks(|_, block| {
            for eight in block.chunks_mut(8) {
                let mut byte = 0;
                for (bit, x) in eight.iter_mut().enumerate() {
                    byte |= u8::from(*x >= 0.0) << bit;
                    *x -= if *x >= 0.0 { mean } else { -mean };
                }
                message.push(byte);
            }
        });
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, out, .. } = args;
        let (mean, bits) = message.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let mean = f32::from_le_bytes(*mean);
        if !mean.is_finite() {
            return Err(DecodeError::Corrupt("the mean is not finite"));
        }
        match bits.len().checked_sub(out.len().div_ceil(8)) {
            None => return Err(DecodeError::Truncated),
            Some(0) => {}
            Some(extra) => return Err(DecodeError::Trailing { extra }),
        }
        for (i, out) in out.iter_mut().enumerate() {
            let positive = bits[i / 8] >> (i % 8) & 1 == 1;
            *out += weight * if positive { mean } else { -mean };
        }
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        4 + elements.div_ceil(8)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_sub(4).saturating_mul(8)
    }
}
