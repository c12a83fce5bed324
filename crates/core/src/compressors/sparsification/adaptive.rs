//! `adaptive`: random elements, with the least variance for their expected number.
//!
//! - **Probabilities**: an element is sent with p = min(|c| / M, 1), and the level M makes Σp = k =
//!   max(1, round(ratio·d)). It starts at M = Σ|c| / k; each iteration sets M ← Σ_{|c| ≤ M} |c| /
//!   (k − n), with n the number of elements above M (Algorithm 3, where 1 / M is called λ), until n
//!   stays the same, at most 7 times. M decreases towards its limit, so an early end, or rounding M
//!   up to an f32, only sends fewer elements and adds no bias. M is at most the largest f32.
//! - **Values**: a sent element decodes to c / p: ±M for elements up to M, c itself for larger
//!   ones. The variance is |c|·(M − |c|) below M and 0 above. The message is unbiased up to the
//!   rounding of probabilities (see below): as the value stays ±M, an element below M is biased
//!   away from 0 by up to M·2⁻²⁴. If M is subnormal, thresholds, and with them probabilities, are
//!   rounded to multiples of 2⁻¹⁴⁹.
//! - **Message**: the elements above M as in `topk`: a byte with the code of their positions (0
//!   bitmap, 1 Rice, 2 raw), their number as varint, their values as f32, the positions. Then the
//!   drawn elements: code byte and number, and, unless the number is 0, M as f32, one bit per sign,
//!   the positions. An empty tensor has an empty message.
//! - **Draws**: element i uses the upper 24 bits of word i [for
//!   rounding](crate::Rng::fill_rounding) of the sender's stream for the tensor and step, so
//!   probabilities are multiples of 2⁻²⁴, rounded up. With fewer than one of 4096 elements in k it
//!   uses the upper 31 bits of word i of the stream itself, and probabilities below 2⁻⁷ are rounded
//!   to multiples of 2⁻³¹.
//! - **Range**: ratio in (0, 1]; up to 2³² − 1 elements. At most k elements are above M; the number
//!   of drawn ones is random.
//! - **Error feedback**: off, as the message is unbiased. With `ef=on` residuals grow from step to
//!   step at small ratios, such as 0.01: the variance of the message is larger than the tensor
//!   itself.
//! - **Cost**: 4 bytes per element for the maximum, 4 for the sum, 4 for each further iteration, 4
//!   for the draws.
//!
//! Reference: Wangni, Wang, Liu, Zhang: "Gradient Sparsification for Communication-Efficient
//! Distributed Optimization", NeurIPS 2018.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::DecodeError;

use super::{drawn, fraction};
use crate::parameters::real;
use crate::wire::fields;
use crate::{Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "adaptive",
    summary: "random elements, drawn with probabilities proportional to their size: unbiased, with the least variance",
    formula: "x̂ = c/p with probability p = min(|c|/M, 1), otherwise 0; Σp = ratio·d",
    family: Family::Sparsification,
    sparse: true,
    examples: &["ratio=0.3,ef=on", "ratio=0.02", "ratio=0.4", "ratio=1,ef=on"],
    reference: "Wangni et al., NeurIPS 2018",
    payload: "large elements as topk; code u8, count varint, M f32, signs, positions",
    passes: Passes::TWO,
    ..Entry::of::<Adaptive>(|_| Guarantee::Unbiased)
};

crate::parameters! {
    /// Sparsification with probabilities in proportion to absolute values.
    pub struct Adaptive {
        /// expected fraction of elements to send
        ratio: f64 = real(0.01, Excluded(0.0), Included(1.0)),
    }
}

impl Adaptive {
    /// k: the expected number of elements in a message.
    fn kept(&self, elements: usize) -> usize {
        fraction::kept(self.ratio, elements)
    }
}

impl Compressor for Adaptive {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        workspace.positions.clear();
        if !source.is_empty() {
            let kept = self.kept(source.len());
            let level = drawn::level(source, kept as f64, &mut workspace.helpers);
            drawn::encode(source, context, level, kept, workspace, message);
        }
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        if out.is_empty() {
            return fields::expect_len(message, 0);
        }
        let kept = self.kept(out.len());
        drawn::decode_add(message, kept, kept, weight, workspace, out)
    }

    fn max_len(&self, elements: usize) -> usize {
        drawn::max_len(self.kept(elements), elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};
    use crate::{BLOCK, Rng, Tensor};

    #[test]
    fn certain_elements_make_the_bytes_worked_by_hand() {
        // Two of four: M = 6 / 2, and 4 is above: M = 2 / 1. So 4 unchanged, and −2 as −M.
        let expected = [0, 1, 0, 0, 0x80, 0x40, 0b0010, 0, 1, 0, 0, 0, 0x40, 1, 0b1000];
        let gradient = [0.0, 4.0, 0.0, -2.0];
        assert_eq!(encode("adaptive:ratio=0.5", &gradient), expected);
        assert_eq!(round_trip("adaptive:ratio=0.5", &gradient), gradient);
        assert_eq!(residual("adaptive:ratio=0.5,ef=on", &gradient), [0.0; 4]);
        // A constant at full ratio becomes signs: no element is above M.
        let expected = [2, 0, 0, 3, 0, 0, 0, 0x3f, 0b010, 0b111];
        assert_eq!(encode("adaptive:ratio=1", &[0.5, -0.5, 0.5]), expected);
        assert_eq!(encode("adaptive", &[0.0; 9]), [2, 0, 2, 0]);
        assert!(encode("adaptive", &[]).is_empty());
    }

    #[test]
    fn element_i_is_decided_by_word_i() {
        let elements = BLOCK + 1003;
        let gradient: Vec<f32> = (0..elements).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        let level = {
            // No element is above it: Σ|c| / k.
            let sum: f64 = gradient.iter().map(|x| f64::from(x.abs())).sum();
            drawn::rounded_up(sum / fraction::kept(0.3, elements) as f64)
        };
        let mut words = vec![0; elements];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill_rounding(0, &mut words);
        let drawn = |(&x, &word): (&f32, &u32)| {
            let sent = (word >> 8) as f32 / 16_777_216.0 * level < x.abs();
            if sent { level.max(x.abs()).copysign(x) } else { 0.0 }
        };
        let expected: Vec<f32> = gradient.iter().zip(&words).map(drawn).collect();
        assert_eq!(round_trip("adaptive:ratio=0.3", &gradient), expected);
        let kept = residual("adaptive:ratio=0.3,ef=on", &gradient);
        assert!(kept.iter().zip(&gradient).zip(&expected).all(|((m, g), q)| *m == g - q));
    }

    #[test]
    fn few_elements_are_decided_by_whole_words() {
        let elements = 3 * BLOCK;
        let gradient: Vec<f32> = (0..elements).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        let sum: f64 = gradient.iter().map(|x| f64::from(x.abs())).sum();
        let level = drawn::rounded_up(sum);
        for step in 0..20 {
            let mut words = vec![0; elements];
            Rng::new(1, Tensor::new("t", &[]).id(), 2, step, 0).fill(&mut words);
            let sent = |(&x, &word): (&f32, &u32)| {
                let sent = (word >> 1) as f32 / 2_147_483_648.0 * level < x.abs();
                if sent { level.copysign(x) } else { 0.0 }
            };
            let expected: Vec<f32> = gradient.iter().zip(&words).map(sent).collect();
            let spec: crate::Spec = "adaptive:ratio=0.00001".parse().unwrap();
            let tensor = Tensor::new("t", &[elements]);
            let (mut message, mut out) = (Vec::new(), vec![0.0; elements]);
            let input = crate::Floats::F32(&gradient);
            crate::Encoder::new(&spec, 1, 2).encode(&tensor, step, input, &mut message).unwrap();
            let mut decoder = crate::Decoder::new(&spec, 1);
            decoder.decode_add(&tensor, step, 2, &message, 1.0, &mut out).unwrap();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = [0, 1, 0, 0, 0x80, 0x40, 0b0010, 0, 1, 0, 0, 0, 0x40, 1, 0b1000];
        let refused = |at: usize, byte: u8| {
            let mut bad = good;
            bad[at] = byte;
            refused("adaptive:ratio=0.5", 4, &bad)
        };
        let corrupt = DecodeError::Corrupt;
        let many = corrupt("there are more positions than the configuration allows");
        assert_eq!(refused(1, 3), many);
        assert_eq!(refused(4, 0), corrupt("a value is not above the level"));
        assert_eq!(refused(14, 0b0010), corrupt("an element is sent twice"));
        assert_eq!(refused(12, 0), corrupt("the level is 0"));
        assert_eq!(refused(12, 0xc0), corrupt("the scale is negative"));
        assert_eq!(refused(13, 2), corrupt("a padding bit is set"));
    }
}
