//! `3lc`: ternary values, five per byte, with zero-run encoding.
//!
//! `M = s·max|c|`, `q = round(c / M)` in {−1, 0, 1} (halves go to 0), decoded as `M·q`. The trits
//! are packed by the [quartic](gradwire_bits::quartic) code, 1.6 bits each, and runs of the byte
//! for five zeros by the [zero-run](gradwire_bits::zero_run) code. A larger sparsity multiplier `s`
//! leaves more zeros, hence fewer bytes, and decodes the rest to a larger magnitude.
//!
//! - **Message**: `M` as f32, then the coded trits: from 0.11 to 1.6 bits per element, + 32. With
//!   `zre=off` the runs stay uncoded: always 1.6 bits. An all-zero tensor takes 1/280 of its size.
//! - **Range**: s in \[1, 2). Below 2, M / 2 is below max|c|, so at least one element of a non-zero
//!   tensor is sent, unless max|c| is one of the least subnormal numbers and M rounds to twice as
//!   much: 2⁻¹⁴⁹ with s from 1.5 on.
//! - **Error**: at most M / 2 per element, which error feedback sends later.
//! - **Error feedback**: on, β = γ = 1. The largest element is sent as s times its value and leaves
//!   −(s − 1) times it. Near s = 2 almost all of it returns with the opposite sign in the next
//!   message, and again in the one after: the update of such elements alternates and settles
//!   slowly, by a factor of s − 1 per step. LeNet-5, which has no batch normalisation, diverged at
//!   s = 1.9 with all three seeds, and at 1.75 with one of them; with the others it lost 0.1 ± 0.2
//!   points (`results/3lc-table1/mnist-lenet5`). A smaller s helps, and so does a lower learning
//!   rate: at half the rate, s = 1.9 trained and lost 3.4 ± 0.6 points in 400 steps (runs not
//!   kept).
//! - **Deviations**: padding to a multiple of five adds zero trits; the paper pads with the digit
//!   0, which means −1 and would spoil the last run of zeros. Runs longer than 14 bytes, which the
//!   paper leaves open, are cut from the left into runs of 14. M saturates at the largest finite
//!   number.
//! - **Cost**: 8 bytes per element for the maximum, 12 for the rest, plus the message.
//!
//! Reference: Lim, Andersen, Kaminsky: "3LC: Lightweight and Effective Traffic Compression for
//! Distributed Machine Learning", MLSys 2019, §3.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::{DecodeError, kernels};

use super::ternary::Fifths;
use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::parameters::{either, real};
use crate::wire::fields;
use crate::{Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "3lc",
    summary: "ternary values with sparsity multiplication, quartic and zero-run coding",
    formula: "x̂ = M·round(c/M), M = s·max|c|",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["zre=off", "s=1.75", "beta=0.5,gamma=0.25"],
    reference: "Lim et al., MLSys 2019",
    payload: "M f32, trits, five per byte, with runs of zeros coded",
    passes: Passes::TWO,
    ..Entry::of::<ThreeLc>(|_| Guarantee::Contractive)
};

const HEADER: usize = 4;
/// The most bytes of five zero trits that one byte stands for.
const LONGEST_RUN: usize = 14;

crate::parameters! {
    /// 3-value quantization with sparsity multiplication and its two lossless codes.
    pub struct ThreeLc {
        /// sparsity multiplier: a larger one gives more zeros and fewer bytes
        sparsity("s"): f32 = real(1.0, Included(1.0), Excluded(2.0)),
        /// zero-run encoding after quartic encoding
        zero_runs("zre"): bool = either(&["on", "off"]),
    }
}

impl Compressor for ThreeLc {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let scale = (self.sparsity * source.abs_max()).min(f32::MAX);
        fields::put_f32(scale, message);
        let fifths = Fifths::new(source.len());
        fifths.encode(source, self.zero_runs, workspace, message, |_, piece, digits, _| {
            kernels::ternary_residual(piece, scale, digits);
        });
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let scale = weight * fields::take_scale(&mut message)?;
        let fifths = Fifths::new(out.len());
        fifths.decode_add(message, self.zero_runs, scale, &mut workspace.helpers, out)
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.div_ceil(5) + HEADER
    }

    fn max_elements(&self, message_len: usize) -> usize {
        let run = if self.zero_runs { LONGEST_RUN } else { 1 };
        message_len.saturating_sub(HEADER).saturating_mul(5 * run)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// M, then the quartic bytes of all elements.
impl DenseForm for ThreeLc {
    fn convert(&self, direction: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from, to, elements, .. } = args;
        let mut bytes = from;
        fields::take_scale(&mut bytes)?;
        copy(&from[..HEADER], to)?;
        match direction {
            Direction::Pack => Fifths::new(elements).pack(bytes, self.zero_runs, to),
            Direction::Unpack => Fifths::new(elements).unpack(bytes, self.zero_runs, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, residual, round_trip};
    use crate::parameters::{Parameters, Value};

    /// 1.0 as the bytes of M.
    const ONE: [u8; 4] = [0, 0, 0x80, 0x3f];

    fn message(scale: [u8; 4], coded: &[u8]) -> Vec<u8> {
        [&scale[..], coded].concat()
    }

    #[test]
    fn five_elements_make_one_byte() {
        assert_eq!(encode("3lc", &[1.0; 5]), message(ONE, &[242]));
        assert_eq!(encode("3lc", &[-1.0; 5]), message(ONE, &[0]));
        // Digits 2 1 0 1 1 (0.5 is a half, and goes to zero): 162 + 27 + 0 + 3 + 1.
        assert_eq!(encode("3lc", &[1.0, 0.5, -0.75, 0.0, -0.5]), message(ONE, &[193]));
    }

    #[test]
    fn the_residual_is_what_was_not_sent() {
        let kept = residual("3lc:s=1.5", &[1.0, 0.5, -1.0, 0.75, -0.25]);
        assert_eq!(kept, [-0.5, 0.5, 0.5, 0.75, -0.25]);
    }

    #[test]
    fn elements_of_a_byte_are_a_fifth_apart() {
        // Seven elements in parts of two: 0 1 | 2 3 | 4 5 | 6 . | . .
        // Byte 0: digits of 0, 2, 4, 6, padding = 2 0 1 2 1; byte 1: of 1, 3, 5 = 1 1 2 1 1.
        let gradient = [1.0, 0.0, -1.0, 0.0, 0.0, 1.0, 1.0];
        let expected = [162 + 9 + 6 + 1, 81 + 27 + 18 + 3 + 1];
        assert_eq!(encode("3lc", &gradient), message(ONE, &expected));
        assert_eq!(round_trip("3lc", &gradient), gradient);
    }

    #[test]
    fn zeros_compress_280_times() {
        assert_eq!(encode("3lc", &[0.0; 75]), message([0; 4], &[255, 121]));
        let zeros = vec![0.0; 5 * 280];
        assert_eq!(encode("3lc", &zeros), message([0; 4], &[255; 20]));
        assert_eq!((4 * zeros.len()) / 20, 280);
        assert_eq!(encode("3lc:zre=off", &[0.0; 75]), message([0; 4], &[121; 15]));
        assert_eq!(encode("3lc", &[]), [0; 4]);
    }

    #[test]
    fn runs_cross_blocks() {
        let elements = 5 * (3 * crate::BLOCK + 17);
        let mut gradient = vec![0.0; elements];
        gradient[0] = 1.0;
        let runs = (elements / 5 - 1) / LONGEST_RUN;
        let mut expected = message(ONE, &[202]);
        expected.resize(5 + runs, 255);
        let left = (elements / 5 - 1) % LONGEST_RUN;
        assert!(left >= 2);
        expected.push(243 + (left as u8 - 2));
        assert_eq!(encode("3lc", &gradient), expected);
        assert_eq!(round_trip("3lc", &gradient), gradient);
    }

    #[test]
    fn malformed_messages_are_told_apart() {
        let mut out = [7.0; 6];
        let mut result = |coded: &[u8]| decode("3lc", &message(ONE, coded), 1.0, &mut out);
        assert_eq!(result(&[121]), Err(DecodeError::Truncated));
        assert_eq!(result(&[244]), Err(DecodeError::Trailing { extra: 1 }));
        assert_eq!(result(&[121, 122]), Err(DecodeError::Corrupt("padding is not zero")));
        assert_eq!(result(&[243]), Ok(()));
        let long = decode("3lc:zre=off", &message(ONE, &[121, 243]), 1.0, &mut out);
        assert_eq!(long, Err(DecodeError::Corrupt("a quartic byte is above 242")));
        let negative = decode("3lc", &message([0, 0, 0x80, 0xbf], &[243]), 1.0, &mut out);
        assert_eq!(negative, Err(DecodeError::Corrupt("the scale is negative")));
        assert_eq!(out, [7.0; 6]);
    }

    #[test]
    fn the_scale_saturates_and_the_multiplier_stays_below_two() {
        assert_eq!(round_trip("3lc:s=1.75", &[f32::MAX, f32::MIN]), [f32::MAX, f32::MIN]);
        let values = [Value::Real(1.999_999_999_999), Value::Choice("on")];
        assert_eq!(ThreeLc::new(&values).sparsity, 2f32.next_down());
    }
}
