//! `none`: every element unchanged.
//!
//! - **Message**: d little-endian binary32 numbers, 32·d bits.
//! - **Aggregation**: linear; the elementwise mean of messages is the message of the mean.
//! - **Error feedback**: off. With it, the residual stays zero, because nothing is lost.
//! - **Cost**: one pass, 8 bytes per element, or 12 if the message is shorter than 16 MiB.

use std::sync::Arc;

use gradwire_bits::kernels;

use super::dense::Dense;
use crate::{Dtype, Entry, Family, Guarantee};

pub(crate) static ENTRY: Entry = Entry {
    id: "none",
    summary: "32-bit floats, uncompressed",
    formula: "x̂ = c",
    family: Family::Baseline,
    reference: "the baseline of every comparison",
    payload: "d × f32",
    lossless: true,
    properties: |_| NONE.properties(),
    ..Entry::new(&[], |_| Guarantee::Both, |_| Arc::new(NONE))
};

const NONE: Dense = Dense { fill: kernels::f32_fill, add: kernels::f32_add, dtype: Dtype::F32 };

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{encode, residual, round_trip};

    #[test]
    fn the_message_is_the_tensor() {
        assert_eq!(encode("none", &[1.0, -2.0]), [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(round_trip("none", &[1.0, -2.0]), [1.0, -2.0]);
        assert!(encode("none", &[]).is_empty());
    }

    #[test]
    fn nothing_is_left_over() {
        let left = residual("none:ef=on", &[1.0, -0.0, f32::MAX, f32::MIN_POSITIVE / 2.0]);
        assert!(left.iter().all(|x| x.to_bits() == 0));
    }
}
