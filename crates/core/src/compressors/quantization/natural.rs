//! `natural`: stochastic rounding to powers of two; the expectation is the gradient.
//!
//! For |c| in [2^e, 2^(e+1)) an element becomes sign(c)·2^(e+1) with probability |c| / 2^e − 1,
//! else sign(c)·2^e: the probability is the mantissa. Zeros stay zero. A subnormal number, |c|
//! below 2^−126, becomes sign(c)·2^−126 with probability |c| / 2^−126, else 0: the same operation
//! on its bits.
//!
//! - **Message**: d bits for the signs, least significant first, 1 for elements at or above zero,
//!   the last byte padded with zeros; then the d biased exponents, 0 for a zero, 8 bits each: 9·d
//!   bits. `code=huffman` uses [Huffman code](gradwire_bits::huffman) for the exponents if that is
//!   shorter; most gradients then take about 4 bits per element.
//! - **Range**: elements of magnitude above 2^127 round to 2^127, because 2^128 is infinity. Apart
//!   from them the message is unbiased, with variance (|c| − 2^e)·(2^(e+1) − |c|), at most c² / 8.
//! - **Draws**: element i uses the upper 23 bits of word i [for
//!   rounding](crate::Rng::fill_rounding) of the sender's stream for the tensor and step.
//! - **Error feedback**: on, as in the survey of Xu et al. (2020, table 1), which found that it
//!   helps in general, but not on recommendation; the paper has none. `ef=ef21` is refused, because
//!   the variance bound does not hold for subnormal numbers.
//! - **Deviations**: none; the paper does not define zeros, subnormal numbers and the top of the
//!   range.
//! - **Cost**: 8 bytes per element for the maximum, 12 to quantize, 4 for the draws; with
//!   `code=huffman` 4 to write and read the exponents.
//!
//! Reference: Horváth, Ho, Horváth, Sahu, Canini, Richtárik: "Natural Compression for Distributed
//! Deep Learning", arXiv 1905.10988, 2019.

use std::ops::Range;

use gradwire_bits::{DecodeError, kernels};

use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::parameters::{Parameters, either};
use crate::parts::cut_mut;
use crate::wire::fields;
use crate::wire::symbols::Alphabet;
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Properties,
    Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "natural",
    summary: "stochastic rounding to powers of two",
    formula: "x̂ = sign(c)·2^(e + [u < |c|/2^e − 1]), e = ⌊log2|c|⌋",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["code=huffman,ef=off", "code=huffman"],
    reference: "Horváth et al., 2019",
    payload: "d bits of signs, d exponents u8",
    properties: |values| {
        let exponents = Natural::new(values).exponents();
        Properties {
            value_bits: exponents.value_bits().map(|bits| bits + 1),
            ..Properties::DEFAULT
        }
    },
    ..Entry::of::<Natural>(|_| Guarantee::Unbiased)
};

/// Zero, and the exponents of all normal numbers.
const EXPONENTS: usize = 255;

crate::parameters! {
    /// Stochastic rounding to powers of two.
    pub struct Natural {
        /// symbols of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

impl Natural {
    fn exponents(&self) -> Alphabet {
        Alphabet::new(EXPONENTS, self.huffman)
    }
}

/// A bit for each element.
#[derive(Debug, Default)]
struct Signs(Vec<u8>);

impl Compressor for Natural {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let rng = context.rng(0);
        let Signs(mut signs) = std::mem::take(workspace.own());
        signs.resize(source.len().div_ceil(8), 0);
        let start = message.len();
        message.resize(start + signs.len(), 0);
        // The signs of a part, or of a block, fill whole bytes.
        let mut rest = &mut signs[..];
        let places = |part: Range<usize>| cut_mut(&mut rest, part.len().div_ceil(8));
        let round = |first, block: &mut [f32], symbols: &mut _, signs: &mut _, own: &mut _| {
            let Workspace { random, block: rounded, .. } = own;
            rounded.resize(BLOCK, 0.0);
            let rounded = &mut rounded[..block.len()];
            let random = rng.rounding_words(first, block.len(), random);
            kernels::natural_residual(block, random, rounded, symbols);
            kernels::sign_residual(rounded, 0.0, 0.0, cut_mut(signs, block.len().div_ceil(8)));
        };
        self.exponents().encode(source, workspace, message, places, round);
        message[start..start + signs.len()].copy_from_slice(&signs);
        *workspace.own() = Signs(signs);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let signs = fields::take(&mut message, out.len().div_ceil(8))?;
        let check = |first: usize, exponents: &[u16]| {
            check_signs(&signs[first / 8..][..exponents.len().div_ceil(8)], exponents)
        };
        let (exponents, helpers) =
            self.exponents().view_checked(&mut message, out.len(), workspace, check)?;
        fields::expect_len(message, 0)?;
        exponents.add(out, helpers, |first, exponents, out| {
            kernels::natural_add(exponents, &signs[first / 8..], weight, out);
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.div_ceil(8) + self.exponents().max_len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_mul(8).min(self.exponents().max_elements(message_len))
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Signs and exponents, as in the message without Huffman code.
impl DenseForm for Natural {
    fn convert(&self, direction: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: mut rest, to, elements, workspace, .. } = args;
        let signs = fields::take(&mut rest, elements.div_ceil(8))?;
        copy(signs, to)?;
        direction.take(self.exponents(), &mut rest, elements, workspace)?;
        check_signs(signs, &workspace.symbols)?;
        fields::expect_len(rest, 0)?;
        direction.put(self.exponents(), workspace, to)
    }
}

/// Checks that padding bits are zero, and that zeros are positive.
fn check_signs(signs: &[u8], exponents: &[u16]) -> Result<(), DecodeError> {
    let (eights, rest) = exponents.as_chunks::<8>();
    let mut wrong = kernels::negative_zeros(exponents, signs);
    if !rest.is_empty() {
        let last = signs[eights.len()];
        let negative = |(at, &exponent): (usize, &u16)| exponent == 0 && last >> at & 1 == 0;
        wrong |= rest.iter().enumerate().any(negative);
        if last >> rest.len() != 0 {
            return Err(DecodeError::Corrupt("a padding bit is set"));
        }
    }
    if wrong { Err(DecodeError::Corrupt("a zero is negative")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, residual, round_trip};
    use crate::{Rng, Tensor};

    #[test]
    fn powers_of_two_are_exact() {
        // Exponents 127 − 1, 127 + 1, 0, 127 − 126, 127 + 127; the second element is negative.
        let gradient = [0.5, -2.0, -0.0, f32::MIN_POSITIVE, 2f32.powi(127)];
        let message = [0b1_1101, 126, 128, 0, 1, 254];
        assert_eq!(encode("natural", &gradient), message);
        assert_eq!(round_trip("natural", &gradient), gradient);
        assert_eq!(residual("natural", &gradient), [0.0; 5]);
        assert!(encode("natural", &[]).is_empty());
    }

    #[test]
    fn element_i_is_decided_by_word_i() {
        let elements = BLOCK + 1003;
        let gradient: Vec<f32> = (0..elements).map(|i| 1.0 + (i % 64) as f32 / 64.0).collect();
        let mut words = vec![0; elements];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill_rounding(0, &mut words);
        let drawn = |(&x, &word): (&f32, &u32)| {
            if f64::from(word >> 9) / 8_388_608.0 < f64::from(x) - 1.0 { 2.0 } else { 1.0 }
        };
        let expected: Vec<f32> = gradient.iter().zip(&words).map(drawn).collect();
        assert!(expected.contains(&1.0) && expected.contains(&2.0));
        assert!(round_trip("natural", &gradient) == expected);
        assert!(round_trip("natural:code=huffman", &gradient) == expected);
        let kept = residual("natural", &gradient);
        assert!(kept.iter().zip(&gradient).zip(&expected).all(|((m, g), q)| *m == g - q));
    }

    #[test]
    fn huffman_worked_by_hand() {
        // 80 ones: bits of signs, one symbol of 255. Lengths: a run of 127 without a code is
        // 110 000000 1 111111; one bit is 111 10000; and another run of 127.
        let message = encode("natural:code=huffman", &[1.0; 80]);
        assert_eq!(message[..11], [&[0xff; 10][..], &[1]].concat());
        let lengths = [0b0000_0011, 0b1111_1110, 0b0000_1111, 0b0000_0011, 0b1111_1110];
        assert_eq!(message[11..], lengths);
    }

    #[test]
    fn the_top_of_the_range_rounds_down() {
        let gradient = [f32::MAX, -f32::MAX, f32::MAX, -f32::MAX];
        let top = 2f32.powi(127);
        assert_eq!(round_trip("natural", &gradient), [top, -top, top, -top]);
    }

    #[test]
    fn subnormals_have_the_right_chance() {
        // A quarter of the least normal number: 1000 of 4000 round up; five standard deviations are
        // 137.
        let quarter = f32::MIN_POSITIVE / 4.0;
        let decoded = round_trip("natural", &[quarter; 4000]);
        let up = decoded.iter().filter(|&&x| x == f32::MIN_POSITIVE).count();
        assert!(up.abs_diff(1000) < 137, "{up}");
        assert!(decoded.iter().all(|&x| x == 0.0 || x == f32::MIN_POSITIVE));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let mut out = [0.0; 2];
        let mut result = |bytes: &[u8]| decode("natural", bytes, 1.0, &mut out);
        assert_eq!(result(&[3, 127]), Err(DecodeError::Truncated));
        assert_eq!(result(&[3, 127, 127, 0]), Err(DecodeError::Trailing { extra: 1 }));
        assert!(matches!(result(&[3, 127, 255]), Err(DecodeError::Corrupt(_))));
        let padded = DecodeError::Corrupt("a padding bit is set");
        assert_eq!(result(&[7, 127, 127]), Err(padded));
        assert_eq!(result(&[1, 127, 0]), Err(DecodeError::Corrupt("a zero is negative")));
        assert_eq!(result(&[2, 127, 0]), Ok(()));
        assert_eq!(out, [-1.0, 0.0]);
    }
}
