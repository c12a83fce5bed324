//! `terngrad`: stochastic rounding to three values; without clipping the expectation is the
//! gradient.
//!
//! An element becomes `sign(c)·M` with probability `min(|c| / M, 1)` and 0 otherwise; `M` is the
//! largest absolute value after clipping. Clipping limits |c| to `clip` standard deviations of the
//! tensor, so one large element does not make all others improbable.
//!
//! - **Message**: `M` as f32, then the trits, five to a byte in the
//!   [quartic](gradwire_bits::quartic) code: 1.6·d + 32 bits. With `code=huffman` runs of five
//!   zeros are [coded](gradwire_bits::zero_run) as in `3lc`; then the number of bytes follows as
//!   varint, and these bytes, in [Huffman code](gradwire_bits::huffman) if that is shorter.
//! - **Which code**: the table has bits per trit, for independent trits with a fraction z of zeros.
//!   Huffman code alone takes at least a fifth of a bit, and runs alone leave other bytes
//!   unchanged; both together work for all z. Clipping at 2.5 standard deviations makes two thirds
//!   of normally distributed elements zero; without clipping nearly all are zero.
//!
//!   | z | entropy | Huffman | runs | runs, then Huffman |
//!   |---|---|---|---|---|
//!   | 0.6 | 1.371 | 1.377 | 1.590 | 1.379 |
//!   | 0.68 | 1.224 | 1.229 | 1.566 | 1.233 |
//!   | 0.8 | 0.922 | 0.938 | 1.428 | 0.956 |
//!   | 0.9 | 0.569 | 0.579 | 1.042 | 0.619 |
//!   | 0.95 | 0.336 | 0.386 | 0.650 | 0.385 |
//!   | 0.99 | 0.091 | 0.235 | 0.226 | 0.113 |
//!   | 0.999 | 0.012 | 0.204 | 0.125 | 0.025 |
//! - **Range**: clip ≥ 0, in standard deviations; 0 is no clipping: the "Stoch 3-value + QE" that
//!   3LC compares with. Without clipping the message is unbiased up to 2⁻²⁴·M, with variance c·(M −
//!   c).
//! - **Draws**: element i uses the upper 24 bits of word i [for
//!   rounding](crate::Rng::fill_rounding) of the sender's stream for the tensor and step.
//! - **Error feedback**: off; with it, training diverges according to Lim et al. 2019, §3.1. Here
//!   ResNet-8 gained 1.4 points, and the perplexity of an LSTM rose by 1.6 (one seed each,
//!   `results/grace-feedback`).
//! - **Deviations**: 1.6 bits per trit instead of 2; each sender uses its own M, while the paper
//!   optionally shares the largest one; σ is the root mean square deviation from the tensor's mean.
//! - **Limits**: clipping is around 0 but σ is around the mean, so clipping cuts most of a tensor
//!   whose mean is larger than σ: elements near 1 with σ = 10⁻⁵ decode to 2.5·10⁻⁵. A σ below 10⁻⁶
//!   of the root mean square counts as 0, and nothing is clipped then. If M is subnormal,
//!   thresholds, and with them probabilities, are rounded to multiples of 2⁻¹⁴⁹.
//! - **Cost**: 4 bytes per element for the maximum and σ, 4 for the draws; with `code=huffman` less
//!   than 1 more.
//!
//! Reference: Wen, Xu, Yan, Wu, Wang, Chen, Li: "TernGrad: Ternary Gradients to Reduce
//! Communication in Distributed Deep Learning", NIPS 2017.

use std::ops::Bound::Included;

use gradwire_bits::{DecodeError, kernels, varint};

use super::ternary::Fifths;
use crate::device::dense::copy;
use crate::device::{DeviceArgs, DeviceForm};
use crate::parameters::{Parameters, either, real};
use crate::wire::fields;
use crate::wire::symbols::Alphabet;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes, Source,
    Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "terngrad",
    summary: "stochastic rounding to three values, five per byte",
    formula: "x̂ = M·sign(c)·[u < |c|/M], M = max|c|, c cut to ±clip·σ before",
    family: Family::Quantization,
    examples: &["clip=0", "clip=0,code=huffman", "code=huffman", "clip=0,code=huffman,ef=on"],
    reference: "Wen et al., NIPS 2017",
    payload: "M f32, trits, five per byte",
    passes: Passes::TWO,
    ..Entry::of::<TernGrad>(|values| TernGrad::new(values).guarantee())
};

const HEADER: usize = 4;
/// The number of byte values if runs of zeros are coded.
const BYTES: usize = 256;
/// The part whose trit is appended last to a quartic byte.
const LAST_PART: usize = 4;

crate::parameters! {
    /// Stochastic 3-value quantization.
    pub struct TernGrad {
        /// clip at this number of standard deviations; 0 does not clip
        clip: f64 = real(2.5, Included(0.0), Included(1e6)),
        /// trits, five per byte, or these bytes with zero-run and Huffman coding
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

impl TernGrad {
    fn guarantee(&self) -> Guarantee {
        match self.clip {
            0.0 => Guarantee::Unbiased,
            _ => Guarantee::Neither("large elements are clipped"),
        }
    }

    /// The alphabet of bytes with coded runs; `None` for uncoded bytes.
    fn coded(&self) -> Option<Alphabet> {
        self.huffman.then(|| Alphabet::new(BYTES, true))
    }

    /// The bytes of a message after its scale, without Huffman code.
    fn bytes<'a>(
        &self,
        message: &'a [u8],
        fifths: Fifths,
        workspace: &'a mut Workspace,
    ) -> Result<&'a [u8], DecodeError> {
        match self.coded() {
            Some(alphabet) => take_coded(alphabet, message, fifths.len, workspace),
            None => Ok(message),
        }
    }

    fn scale(&self, source: &mut Source<'_>) -> f32 {
        if self.clip == 0.0 {
            return source.abs_max();
        }
        let limit = (self.clip * source.moments().standard_deviation()) as f32;
        // The standard deviation of a constant tensor is 0, but its elements are sent anyway.
        if limit > 0.0 { limit.min(source.abs_max()) } else { source.abs_max() }
    }
}

/// Replaces the bytes with coded runs at the end of a message, from `start` on, by their number and
/// their code in this alphabet. Reserves memory for `most` bytes.
fn put_coded(
    alphabet: Alphabet,
    start: usize,
    most: usize,
    workspace: &mut Workspace,
    message: &mut Vec<u8>,
) {
    let symbols = &mut workspace.symbols;
    symbols.clear();
    symbols.reserve(most);
    symbols.extend(message.drain(start..).map(u16::from));
    varint::write(symbols.len() as u64, message);
    alphabet.write(workspace, message);
}

/// The bytes of symbols.
#[derive(Debug, Default)]
struct Coded(Vec<u8>);

/// Reads the output of [`put_coded`], at most `most` bytes.
fn take_coded<'a>(
    alphabet: Alphabet,
    mut message: &[u8],
    most: usize,
    workspace: &'a mut Workspace,
) -> Result<&'a [u8], DecodeError> {
    let count = varint::read(&mut message)?;
    if count > most as u64 {
        return Err(DecodeError::Corrupt("there are more bytes than the tensor needs"));
    }
    workspace.symbols.clear();
    workspace.symbols.try_reserve(most)?;
    alphabet.read(&mut message, count as usize, workspace)?;
    fields::expect_len(message, 0)?;
    let Workspace { symbols, own, .. } = workspace;
    let Coded(bytes) = own.get();
    bytes.clear();
    bytes.try_reserve(most)?;
    bytes.extend(symbols.iter().map(|&symbol| symbol as u8));
    Ok(bytes)
}

impl Compressor for TernGrad {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let scale = self.scale(source);
        fields::put_f32(scale, message);
        let rng = context.rng(0);
        let keeps_residual = source.keeps_residual();
        let (start, fifths) = (message.len(), Fifths::new(source.len()));
        fifths.encode(
            source,
            self.huffman,
            workspace,
            message,
            |first, piece, digits, workspace| {
                let random = rng.rounding_words(first, piece.len(), &mut workspace.random);
                kernels::stochastic_ternary(piece, scale, random, digits);
                if keeps_residual {
                    kernels::ternary_add(digits, LAST_PART, -scale, piece);
                }
            },
        );
        if let Some(alphabet) = self.coded() {
            put_coded(alphabet, start, fifths.len, workspace, message);
        }
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let scale = weight * fields::take_scale(&mut message)?;
        let fifths = Fifths::new(out.len());
        let mut helpers = std::mem::take(&mut workspace.helpers);
        let bytes = self.bytes(message, fifths, workspace);
        let added = bytes
            .and_then(|bytes| fifths.decode_add(bytes, self.huffman, scale, &mut helpers, out));
        workspace.helpers = helpers;
        added
    }

    fn statistics(&self, _: usize) -> Statistics {
        if self.clip == 0.0 { Statistics::Largest } else { Statistics::Moments }
    }

    fn max_len(&self, elements: usize) -> usize {
        let bytes = elements.div_ceil(5);
        let count = varint::len(bytes as u64);
        HEADER + self.coded().map_or(bytes, |alphabet| count + alphabet.max_len(bytes))
    }

    fn max_elements(&self, message_len: usize) -> usize {
        let len = message_len.saturating_sub(HEADER);
        match self.coded() {
            None => len.saturating_mul(5),
            // The code follows the number of bytes.
            Some(alphabet) => alphabet.max_elements(len.saturating_sub(1)),
        }
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// M, then the quartic bytes of all elements.
impl DeviceForm for TernGrad {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        let mut bytes = form;
        fields::take_scale(&mut bytes)?;
        copy(&form[..HEADER], message)?;
        let (start, fifths) = (message.len(), Fifths::new(elements));
        fifths.pack(bytes, self.huffman, message)?;
        if let Some(alphabet) = self.coded() {
            put_coded(alphabet, start, fifths.len, workspace, message);
        }
        Ok(Coverage::All)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        let mut rest = message;
        fields::take_scale(&mut rest)?;
        copy(&message[..HEADER], form)?;
        let fifths = Fifths::new(elements);
        let bytes = self.bytes(rest, fifths, workspace)?;
        fifths.unpack(bytes, self.huffman, form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, refused, residual, round_trip};
    use crate::{BLOCK, Rng, Tensor};

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
        // Deviation 2, so all eight elements reach M = 2; two places are padding.
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
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill_rounding(0, &mut words);
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
    fn huffman_worked_by_hand() {
        // Runs of 14 bytes of five zeros: 255 three times, without a stream. Lengths: a run of 255
        // symbols without a code is 110 0000000 1 1111111, and one bit 111 10000.
        let zeros = [0.0; 5 * 42];
        let expected = [0, 0, 0, 0, 3, 0, 255, 255, 255];
        assert_eq!(encode("terngrad:code=huffman", &zeros), expected);
        let zeros = vec![0.0; 5 * 14 * 9];
        let expected = [0, 0, 0, 0, 9, 1, 0b0000_0011, 0b1111_1100, 0b0011_1111, 0];
        let message = encode("terngrad:code=huffman", &zeros);
        assert_eq!(message, expected);
        // Too few for code lengths to pay: a byte of 2 0 1 2 0, and two bytes of five zeros.
        let mut gradient = [0.0; 15];
        [gradient[0], gradient[3], gradient[9], gradient[12]] = [0.5, -0.5, 0.5, -0.5];
        let expected = [0, 0, 0, 0x3f, 2, 0, 162 + 9 + 6, 243];
        assert_eq!(encode("terngrad:clip=0,code=huffman", &gradient), expected);
        assert_eq!(encode("terngrad:code=huffman", &[]), [0; 5]);
    }

    #[test]
    fn codes_do_not_change_what_is_decoded() {
        let gradient: Vec<f32> =
            (0..30_011).map(|i| ((i % 1009) as f32 / 504.0 - 1.0).powi(9)).collect();
        for clip in ["0", "2.5"] {
            let plain = format!("terngrad:clip={clip}");
            let coded = format!("{plain},code=huffman");
            assert!(round_trip(&coded, &gradient) == round_trip(&plain, &gradient));
            let kept = |spec: &str| residual(&format!("{spec},ef=on"), &gradient);
            assert!(kept(&coded) == kept(&plain));
            let [coded, plain] = [coded, plain].map(|spec| encode(&spec, &gradient).len());
            assert!(coded < 3 * plain / 4, "{clip}: {coded} and {plain}");
        }
    }

    #[test]
    fn malformed_coded_messages_are_refused() {
        let mut out = [1.0; 20];
        let mut result = |coded: &[u8]| {
            let message = [&[0, 0, 0, 0x3f], coded].concat();
            decode("terngrad:code=huffman", &message, 1.0, &mut out)
        };
        let more = DecodeError::Corrupt("there are more bytes than the tensor needs");
        assert_eq!(result(&[5, 0, 121, 121, 121, 121, 121]), Err(more));
        assert_eq!(result(&[1, 0, 244]), Err(DecodeError::Truncated));
        assert_eq!(result(&[1, 0, 246]), Err(DecodeError::Trailing { extra: 1 }));
        assert_eq!(result(&[1, 0, 245, 0]), Err(DecodeError::Trailing { extra: 1 }));
        assert!(matches!(result(&[1, 4, 245]), Err(DecodeError::Corrupt(_))));
        assert_eq!(result(&[1, 0]), Err(DecodeError::Truncated));
        assert_eq!(result(&[]), Err(DecodeError::Truncated));
        assert_eq!(result(&[2, 0, 244, 121]), Ok(()));
        assert_eq!(out, [1.0; 20]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |bytes: &[u8]| refused("terngrad", 5, bytes);
        assert_eq!(result(&[0, 0, 0, 0x3f]), DecodeError::Truncated);
        assert_eq!(result(&[0, 0, 0, 0x3f, 1, 1]), DecodeError::Trailing { extra: 1 });
        assert!(matches!(result(&[0, 0, 0, 0x3f, 243]), DecodeError::Corrupt(_)));
        assert!(matches!(result(&[0, 0, 0x80, 0x7f, 1]), DecodeError::Corrupt(_)));
    }
}
