//! `lpc-svrg`: stochastic rounding to a fixed number of bits, with clipping to a fraction of the
//! range.
//!
//! With w bits and δ = λ·max|c| / (2^(w−1) − 1) the code-words are −2^(w−1)·δ … (2^(w−1) − 1)·δ. An
//! element outside their range becomes the nearest code-word. Any other element is between two
//! code-words, ε and ε + δ, and becomes the upper one with probability (c − ε) / δ.
//!
//! - **Message**: δ as f32, then for each element the code-word counted from the lowest, in w bits:
//!   w·d + 32 bits. `code=huffman` uses [Huffman code](gradwire_bits::huffman) if that is shorter.
//! - **Range**: w from 2 (one bit leaves no δ) to 16; λ in (0, 1]. With λ = 1 no element is
//!   clipped, and the message is unbiased up to 2⁻²⁴·δ, with variance (c − ε)·(ε + δ − c), at most
//!   δ² / 4. A smaller λ biases the few largest elements, but reduces the variance of all others.
//! - **Draws**: element i uses the upper 24 bits of word i [for
//!   rounding](crate::Rng::fill_rounding) of the sender's stream for the tensor and step.
//! - **Limits**: δ is at most 2^(128 − w), so the lowest code-word is finite: larger elements are
//!   clipped. If 1 / δ overflows (δ below about 3·10⁻³⁹), δ and all elements are sent as zero.
//! - **Error feedback**: off; the survey of Xu et al. (2020) did not run the method. With few bits
//!   and `ef=on` residuals may grow.
//! - **Deviations**: this is only the quantizer. The other half of the method, variance reduction,
//!   computes its input: the differences between gradients and the gradients at a snapshot.
//!   gradwire's trainer does so with `--svrg`.
//! - **Cost**: 4 bytes per element for the maximum, 4 to quantize, 4 for the draws; with error
//!   feedback 8 and 12; with `code=huffman` 4 to write and read the code-words.
//!
//! Reference: Yu, Wu, Huang: "Exploring Fast and Communication-Efficient Algorithms in Large-Scale
//! Distributed Networks", AISTATS 2019, section 3.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Levels};

use crate::parameters::{Parameters, either, real, whole};
use crate::wire::symbols::Alphabet;
use crate::wire::{fields, levels};
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes, Properties,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "lpc-svrg",
    summary: "stochastic rounding to a fixed number of bits, with clipping",
    formula: "x̂ = δ·(⌊t⌋ + [u < t − ⌊t⌋]), t = c/δ cut to −2^(w−1) … 2^(w−1) − 1, δ = λ·max|c|/(2^(w−1) − 1)",
    family: Family::Quantization,
    examples: &[
        "w=5",
        "lambda=0.25,code=huffman,ef=on",
        "w=3,lambda=0.5,code=huffman",
        "w=16,ef=on",
    ],
    reference: "Yu, Wu, Huang, AISTATS 2019",
    payload: "δ f32, code-words of w bits",
    passes: Passes::TWO,
    properties: |values| {
        let value_bits = LpcSvrg::new(values).words().value_bits();
        Properties { value_bits, ..Properties::DEFAULT }
    },
    ..Entry::of::<LpcSvrg>(|values| LpcSvrg::new(values).guarantee())
};

const HEADER: usize = 4;

crate::parameters! {
    /// Stochastic quantization with clipping.
    pub struct LpcSvrg {
        /// bits per element
        bits("w"): u32 = whole(8, 2..=16),
        /// clip at this fraction of the largest absolute value; 1 does not clip
        clip("lambda"): f64 = real(1.0, Excluded(0.0), Included(1.0)),
        /// symbols of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

impl LpcSvrg {
    fn guarantee(&self) -> Guarantee {
        match self.clip {
            1.0 => Guarantee::Unbiased,
            _ => Guarantee::Neither("large elements are clipped"),
        }
    }

    /// Code-words below zero.
    fn half(&self) -> f32 {
        (1 << (self.bits - 1)) as f32
    }

    fn words(&self) -> Alphabet {
        Alphabet::new(1 << self.bits, self.huffman)
    }

    /// δ and its inverse for a tensor with this maximum.
    fn delta(&self, abs_max: f32) -> (f32, f32) {
        let delta = self.clip * f64::from(abs_max) / f64::from(self.half() - 1.0);
        // The largest finite number is just below 2^128, and half a power of two.
        let most = 2f64.powi(127) / f64::from(self.half());
        levels::invertible(delta.min(most) as f32)
    }
}

impl Compressor for LpcSvrg {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let (step, inverse) = self.delta(source.abs_max());
        fields::put_f32(step, message);
        let levels = Levels { least: -self.half(), most: self.half() - 1.0, inverse, step };
        let (rng, keeps_residual) = (context.rng(0), source.keeps_residual());
        let none = |_| ();
        self.words().encode(source, workspace, message, none, |first, block, symbols, _, own| {
            let random = rng.rounding_words(first, block.len(), &mut own.random);
            kernels::stochastic_levels(block, levels, random, symbols);
            if keeps_residual {
                kernels::levels_off(block, symbols, levels);
            }
        });
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let step = levels::take_step(&mut message, self.half())?;
        let (symbols, helpers) = self.words().view(&mut message, out.len(), workspace)?;
        fields::expect_len(message, 0)?;
        symbols.add(out, helpers, |_, symbols, out| {
            kernels::levels_add(symbols, -self.half(), weight * step, out);
        });
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        self.words().max_len(elements).saturating_add(HEADER)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.words().max_elements(message_len.saturating_sub(HEADER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};
    use crate::{BLOCK, Rng, Tensor};

    const ONE: [u8; 4] = [0, 0, 0x80, 0x3f];

    #[test]
    fn certain_code_words_make_the_bytes_worked_by_hand() {
        // Three bits, largest 3, δ = 1: 3, −3, 0, −1 and 2 are 7, 1, 4, 3 and 6 from −4 up:
        // 111 001 100 011 110, each from the right.
        let gradient = [3.0, -3.0, 0.0, -1.0, 2.0];
        let expected = [&ONE[..], &[0b0000_1111, 0b110_0111]].concat();
        assert_eq!(encode("lpc-svrg:w=3", &gradient), expected);
        assert_eq!(round_trip("lpc-svrg:w=3", &gradient), gradient);
        assert_eq!(encode("lpc-svrg", &[]), [0; 4]);
    }

    #[test]
    fn clipping_reaches_one_further_below_zero() {
        // λ = 1/2 of 6: δ = 1 again; 6 is clipped to 3 and −6 to −4: 7, 0 and 2.
        let gradient = [6.0, -6.0, -2.0];
        let expected = [&ONE[..], &[0b1000_0111, 0]].concat();
        assert_eq!(encode("lpc-svrg:w=3,lambda=0.5", &gradient), expected);
        assert_eq!(round_trip("lpc-svrg:w=3,lambda=0.5", &gradient), [3.0, -4.0, -2.0]);
        assert_eq!(residual("lpc-svrg:w=3,lambda=0.5,ef=on", &gradient), [3.0, -2.0, 0.0]);
    }

    #[test]
    fn element_i_is_decided_by_word_i() {
        let elements = 2 * BLOCK + 1003;
        let gradient: Vec<f32> =
            (0..elements).map(|i| (i * 37 % 255) as f32 / 4.0 - 31.5).collect();
        assert_eq!(gradient.iter().fold(0f32, |m, x| m.max(x.abs())), 32.0);
        let mut words = vec![0; elements];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill_rounding(0, &mut words);
        // λ is 31/32: with six bits δ is 1.
        let drawn = |(&x, &word): (&f32, &u32)| {
            let t = f64::from(x).clamp(-32.0, 31.0);
            let chance = f64::from(word >> 8) / 16_777_216.0;
            (t.floor() + f64::from(u8::from(chance < t - t.floor()))) as f32
        };
        let expected: Vec<f32> = gradient.iter().zip(&words).map(drawn).collect();
        assert!(round_trip("lpc-svrg:w=6,lambda=0.96875", &gradient) == expected);
        assert!(round_trip("lpc-svrg:w=6,lambda=0.96875,code=huffman", &gradient) == expected);
    }

    #[test]
    fn extremes_of_the_format_decode_to_finite_numbers() {
        for spec in ["lpc-svrg:w=2", "lpc-svrg:w=2,lambda=0.6", "lpc-svrg", "lpc-svrg:w=16"] {
            let decoded = round_trip(spec, &[f32::MAX, -f32::MAX, -f32::MAX, 0.0, 1.0]);
            assert!(decoded.iter().all(|x| x.is_finite()), "{spec}: {decoded:?}");
        }
        assert_eq!(round_trip("lpc-svrg", &[f32::from_bits(1); 3]), [0.0; 3]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let of = |message: &[u8]| refused("lpc-svrg:w=3", 2, message);
        let refused = |rest: &[u8]| of(&[&ONE[..], rest].concat());
        assert_eq!(refused(&[]), DecodeError::Truncated);
        assert_eq!(refused(&[1, 2]), DecodeError::Trailing { extra: 1 });
        assert_eq!(refused(&[0x40]), DecodeError::Corrupt("padding bits are not zero"));
        for step in [-1.0, f32::NAN, f32::INFINITY, 1e38] {
            let message = [&f32::to_le_bytes(step)[..], &[1]].concat();
            assert!(matches!(of(&message), DecodeError::Corrupt(_)), "{step}");
        }
    }
}
