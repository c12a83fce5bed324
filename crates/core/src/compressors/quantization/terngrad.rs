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

use super::ternary::Fifths;
use crate::compressors::fields;
use crate::numeric::moments::Moments;
use crate::registry::{Ends, Guarantees, Kind, Param};
use crate::{Aggregation, BLOCK, Compressor, Context, Entry, Family, Sent, Source, Workspace};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    id: "terngrad",
    summary: "three values drawn at random, five to a byte",
    formula: "x̂ = M·sign(c)·[u < |c|/M], M = max|c|, c cut to ±clip·σ before",
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
        fifths.check_plain(message)?;
        if scale != 0.0 {
            fifths.decode_add_plain(message, workspace, scale, out);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, residual};
    use crate::{Rng, Tensor};

    #[test]
    fn certain_elements_make_the_bytes_worked_by_hand() {
        // Elements at ±M are always sent and zeros never: digits 2 0 1 2 0.
        let message = encode("terngrad:clip=0", &[0.5, -0.5, 0.0, 0.5, -0.5]);
        assert_eq!(message, [0, 0, 0, 0x3f, 162 + 9 + 6]);
        assert_eq!(encode("terngrad", &[-0.5; 5]), [0, 0, 0, 0x3f, 0]);
        assert_eq!(encode("terngrad", &[]), [0; 4]);
    }

    #[test]
    fn clipping_is_in_standard_deviations() {
        // Deviation 2, so that all eight elements reach M = 2; two places are padding.
        let gradient = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let message = encode("terngrad:clip=1", &gradient);
        assert_eq!(message, [0, 0, 0, 0x40, 241, 241]);
        let kept = residual("terngrad:clip=1,ef=on", &gradient);
        assert_eq!(kept, [0.0, 2.0, 2.0, 2.0, 3.0, 3.0, 5.0, 7.0]);
        assert_eq!(encode("terngrad:clip=100", &gradient)[..4], 9f32.to_le_bytes());
    }

    #[test]
    fn element_i_is_decided_by_word_i() {
        let elements = 5 * BLOCK + 5003;
        let gradient: Vec<f32> = (0..elements).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        let mut words = vec![0; elements];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill(&mut words);
        let drawn = |(&x, &word): (&f32, &u32)| {
            let sent = (word >> 8) as f32 / 16_777_216.0 * 0.5 < x.abs();
            if sent { 0.5f32.copysign(x) } else { 0.0 }
        };
        let expected: Vec<f32> = gradient.iter().zip(&words).map(drawn).collect();
        let mut out = vec![0.0; elements];
        decode("terngrad:clip=0", &encode("terngrad:clip=0", &gradient), 1.0, &mut out).unwrap();
        assert!(out == expected);
        let kept = residual("terngrad:clip=0,ef=on", &gradient);
        assert!(kept.iter().zip(&gradient).zip(&out).all(|((m, g), q)| *m == g - q));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let mut out = [0.0; 5];
        let mut result = |bytes: &[u8]| decode("terngrad", bytes, 1.0, &mut out);
        assert_eq!(result(&[0, 0, 0, 0x3f]), Err(DecodeError::Truncated));
        assert_eq!(result(&[0, 0, 0, 0x3f, 1, 1]), Err(DecodeError::Trailing { extra: 1 }));
        assert!(matches!(result(&[0, 0, 0, 0x3f, 243]), Err(DecodeError::Corrupt(_))));
        assert!(matches!(result(&[0, 0, 0x80, 0x7f, 1]), Err(DecodeError::Corrupt(_))));
    }
}
