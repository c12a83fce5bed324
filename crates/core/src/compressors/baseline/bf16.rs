//! `bf16`: every element rounded to bfloat16.
//!
//! - **Message**: d little-endian 16-bit patterns, 16·d bits.
//! - **Rounding**: to nearest, ties to even; values beyond bfloat16's largest finite number become
//!   that number instead of infinity; values up to 2⁻¹³⁴ become zero.
//! - **Aggregation**: linear; the mean of messages, computed in f32 and rounded once, is the
//!   message of the mean, up to rounding.
//! - **Error feedback**: off. With it, the residual holds the rounding errors.
//! - **Cost**: one pass, 6 bytes per element, or 8 if the message is shorter than 16 MiB.

use std::sync::Arc;

use gradwire_bits::kernels;

use super::dense::Dense;
use crate::{Dtype, Entry, Family, Guarantee};

pub(crate) static ENTRY: Entry = Entry {
    id: "bf16",
    summary: "16-bit floats with the range of 32-bit ones",
    formula: "x̂ = c rounded to bfloat16, cut to its largest number",
    family: Family::Baseline,
    reference: "bfloat16: the upper half of IEEE 754 binary32",
    payload: "d × bf16",
    properties: |_| BF16.properties(),
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(BF16))
};

const BF16: Dense = Dense { fill: kernels::bf16_fill, add: kernels::bf16_add, dtype: Dtype::Bf16 };

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{encode, residual};

    #[test]
    fn patterns_are_the_upper_halves() {
        let message = encode("bf16", &[1.0, -2.0, f32::MAX, f32::MIN]);
        assert_eq!(message, [0x80, 0x3f, 0, 0xc0, 0x7f, 0x7f, 0x7f, 0xff]);
    }

    #[test]
    fn ties_round_to_even() {
        let tie = |pattern: u32| f32::from_bits(pattern << 16 | 0x8000);
        assert_eq!(encode("bf16", &[tie(0x3f80), tie(0x3f81)]), [0x80, 0x3f, 0x82, 0x3f]);
    }

    #[test]
    fn the_residual_is_the_rounding_error() {
        let error = 2f32.powi(-9);
        assert_eq!(residual("bf16:ef=on", &[1.0 + error, -1.0]), [error, 0.0]);
    }
}
