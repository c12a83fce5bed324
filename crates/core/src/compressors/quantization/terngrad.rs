//! `terngrad`: three values drawn at random, so that the expectation is the gradient.
//!
//! With `M` the largest absolute value after clipping, an element becomes `sign(c)·M` with probability
//! `min(|c| / M, 1)` and 0 otherwise. Clipping limits |c| to `clip` standard deviations of the tensor,
//! which keeps one large element from making all others improbable.
//!
//! - **Message**: `M` as f32, then the trits, five to a byte in the [quartic](gradwire_bits::quartic)
//!   code: 1.6·d + 32 bits.
//! - **Range**: clip ≥ 0, in standard deviations; 0 is no clipping, which is 3LC's comparator
//!   "Stoch 3-value + QE". Without clipping the message is unbiased, with variance c·(M − c).
//! - **Draws**: element i uses word i of the sender's stream for the tensor and step; 24 bits each.
//! - **Error feedback**: off; with it, training is known to diverge (Lim et al. 2019, §3.1).
//! - **Deviations**: 1.6 bits where the paper's 2 are customary; each sender has its own M, where
//!   the paper offers to share the largest one between workers; σ is the root mean square deviation
//!   from the tensor's mean.
//! - **Cost**: 4 bytes an element for the maximum, 4 for σ if clipping, 4 for the draws.
//!
//! Reference: Wen, Xu, Yan, Wu, Wang, Chen, Li: "TernGrad: Ternary Gradients to Reduce Communication in
//! Distributed Deep Learning", NIPS 2017.

use std::sync::Arc;

use gradwire_bits::{DecodeError, kernels};

use super::ternary::{Fifths, last_bytes};
use crate::compressors::fields;
use crate::numeric::moments::Moments;
use crate::registry::{Ends, Guarantees, Kind, Param};
use crate::{Aggregation, BLOCK, Compressor, Context, Entry, Family, Sent, Source, Workspace};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    id: "terngrad",
    summary: "three values drawn at random, five to a byte",
    family: Family::Quantization,
    aggregation: Aggregation::Gather,
    error_feedback: false,
    parameters: &[Param {
        key: "clip",
        kind: Kind::Real { min: 0.0, max: 1e6, ends: Ends::Both, default: 2.5 },
        help: "clip at so many standard deviations; 0 is no clipping",
    }],
    reference: "Wen et al., NIPS 2017",
    payload: "M f32, trits five to a byte",
    guarantees: Guarantees { unbiased: false, lossless: false },
    build: |values| Arc::new(TernGrad { clip: values.real("clip") }),
};

const HEADER: usize = 4;
const LARGEST_DIGIT: u8 = 242;
/// The part of a quartic byte that was appended last.
const LAST_PART: usize = 4;

/// Stochastic 3-value quantization.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TernGrad {
    /// Standard deviations at which elements are clipped; 0 for no clipping.
    pub clip: f64,
}

impl TernGrad {
    fn scale(&self, source: &mut Source<'_>) -> f32 {
        if self.clip == 0.0 {
            return source.abs_max();
        }
        let mut moments = Moments::default();
        source.peek_blocks(|_, block| moments.add(block));
        let limit = (self.clip * moments.standard_deviation()) as f32;
        // A constant tensor deviates by nothing, and still has something to send.
        if limit > 0.0 { limit.min(source.abs_max()) } else { source.abs_max() }
    }
}

impl Compressor for TernGrad {
    fn encode(
        &self,
        source: &mut Source<'_>,
        context: &Context<'_>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Sent {
        let scale = self.scale(source);
        fields::put_f32(scale, message);
        let rng = context.rng(0);
        let keeps_residual = source.keeps_residual();
        let Workspace { bytes, words, .. } = workspace;
        words.resize(BLOCK, 0);
        let quantize = |first, piece: &mut [f32], digits: &mut [u8]| {
            let words = &mut words[..piece.len()];
            rng.fill_from(first, words);
            kernels::stochastic_ternary(piece, scale, words, digits);
            if keeps_residual {
                kernels::ternary_add(digits, LAST_PART, -scale, piece);
            }
        };
        Fifths::new(source.len())
            .encode(source, bytes, quantize, |digits| message.extend_from_slice(digits));
        Sent::All
    }

    fn decode_add(
        &self,
        mut message: &[u8],
        _: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let scale = weight * fields::take_scale(&mut message)?;
        let fifths = Fifths::new(out.len());
        fields::expect_len(message, fifths.len)?;
        if kernels::max_byte(message) > LARGEST_DIGIT {
            return Err(DecodeError::Corrupt("a byte is no five trits"));
        }
        let (last, count) = last_bytes(message, fifths.len);
        if !fifths.padding_is_zero(&last[..count]) {
            return Err(DecodeError::Corrupt("padding is not zero"));
        }
        if scale != 0.0 {
            fifths.decode_add(workspace, scale, out, |digits| {
                let (head, rest) = message.split_at(digits.len());
                digits.copy_from_slice(head);
                message = rest;
            });
        }
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.div_ceil(5) + HEADER
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_sub(HEADER).saturating_mul(5)
    }
}
