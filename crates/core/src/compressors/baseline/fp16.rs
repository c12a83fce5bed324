//! `fp16`: every element rounded to IEEE binary16.
//!
//! - **Message**: d little-endian 16-bit patterns, 16·d bits.
//! - **Rounding**: to nearest, ties to even; values beyond ±65504 become ±65504 instead of
//!   infinity; values below 2⁻²⁵ become zero.
//! - **Aggregation**: linear; the mean of messages, computed in f32 and rounded once, is the
//!   message of the mean, up to rounding.
//! - **Error feedback**: off. With it, the residual holds the rounding errors. With `ef=ef21` an
//!   estimate comes within 2⁻²⁵ of each element but no closer, and moves by at most 65504 per step.
//! - **Cost**: one pass, 6 bytes per element, or 8 if the message is shorter than 16 MiB.

use std::sync::Arc;

use gradwire_bits::kernels;

use super::dense::Dense;
use crate::{Dtype, Entry, Family, Guarantee};

pub(crate) static ENTRY: Entry = Entry {
    id: "fp16",
    summary: "16-bit IEEE floats",
    formula: "x̂ = c rounded to binary16, cut to ±65504",
    family: Family::Baseline,
    reference: "IEEE 754-2019, binary16",
    payload: "d × f16",
    properties: |_| FP16.properties(),
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(FP16))
};

const FP16: Dense = Dense { fill: kernels::f16_fill, add: kernels::f16_add, dtype: Dtype::F16 };

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{encode, residual, round_trip};

    #[test]
    fn patterns_are_ieee_binary16() {
        // 1 = 0x3c00; -2 = 0xc000; the largest finite is 0x7bff; 2^-24 is the least subnormal.
        let message = encode("fp16", &[1.0, -2.0, 1e9, -1e9, 2f32.powi(-24), 2f32.powi(-26)]);
        assert_eq!(message, [0, 0x3c, 0, 0xc0, 0xff, 0x7b, 0xff, 0xfb, 1, 0, 0, 0]);
        assert_eq!(round_trip("fp16", &[1.0, -2.0, 1e9]), [1.0, -2.0, 65504.0]);
    }

    #[test]
    fn ties_round_to_even() {
        // Between 1 and 1 + 2^-10 the even pattern is 1; one step further, it is the upper one.
        let tie = |step: f32| 1.0 + (step + 0.5) * 2f32.powi(-10);
        assert_eq!(encode("fp16", &[tie(0.0), tie(1.0)]), [0x00, 0x3c, 0x02, 0x3c]);
    }

    #[test]
    fn the_residual_is_the_rounding_error() {
        let error = 2f32.powi(-12);
        assert_eq!(residual("fp16:ef=on", &[1.0 + error, 70_000.0]), [error, 4496.0]);
    }
}
