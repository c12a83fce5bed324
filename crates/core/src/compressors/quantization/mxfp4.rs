//! `mxfp4`: 4-bit floats in blocks of 32 with a power of two as their scale (OCP Microscaling).
//!
//! `scale = 2^(⌊log2 max|c|⌋ − 2)` in each block, limited to 2^−127 and above. `q` is the nearest
//! to `c / scale` of 0, ±½, ±1, ±1½, ±2, ±3, ±4 and ±6 (E2M1; ties to the even mantissa), decoded
//! as `scale·q`. Scales and decoded elements are exact in binary32. The tensor is cut in row-major
//! order, and the last block may be shorter.
//!
//! - **Message**: for each block the exponent of the scale plus 127 as a byte (E8M0), then the
//!   codes of the elements, two to a byte, the first in the low half: 4.25·d bits. An odd last
//!   element shares its byte with a 0.
//! - **Error**: at most a quarter of the element from the scale on, and a quarter of the scale
//!   below it. A largest element above 6 times the scale is cut by at most a quarter.
//! - **Error feedback**: on.
//! - **Limits**: the least scale is 2^−127, also for zeros. With it elements of at most 2^−129
//!   become zero. Zeros keep their sign.
//! - **Deviations**: none.
//! - **Cost**: 4 bytes per element; with error feedback 8 to check first, and 12 to quantize.
//!
//! Reference: Open Compute Project: "OCP Microscaling Formats (MX) Specification", version 1.0,
//! 2023, section 6.3; Rouhani et al.: "Microscaling Data Formats for Deep Learning",
//! arXiv:2310.10537.

use std::sync::Arc;

use gradwire_bits::kernels::BlockScaled;

use super::block_scaled::{self, Microscaling};
use crate::{Entry, Family, Guarantee};

pub(crate) static ENTRY: Entry = Entry {
    id: "mxfp4",
    summary: "4-bit floats in blocks of 32 with a power of two as their scale",
    formula: "x̂ = s·(c/s rounded to E2M1, cut to ±6), s = 2^(⌊log2 max|c|⌋ − 2) of the block",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["ef=off"],
    reference: "OCP Microscaling Formats 1.0",
    payload: "for each block of 32 a scale E8M0, d × FP4",
    properties: |_| block_scaled::properties(BlockScaled::Mxfp4),
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(Microscaling(BlockScaled::Mxfp4)))
};

#[cfg(test)]
mod tests {
    use gradwire_bits::DecodeError;

    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn blocks_by_hand() {
        // Two blocks, the second of three elements. In the first one the largest is 14 = 1.75·2^3,
        // so the scale is 2: 7 is cut to 6, code 7; −2.5 becomes −2, code 8 + 4, because its
        // mantissa is even; 0.75 becomes 1, code 2; 0.25 becomes 0. The scale of the second is ¼.
        let mut gradient = [0.0; 35];
        gradient[..4].copy_from_slice(&[14.0, -5.0, 1.5, 0.5]);
        gradient[32..].copy_from_slice(&[1.0, -0.125, -0.0]);
        let mut expected = [0; 2 + 18];
        expected[..4].copy_from_slice(&[128, 125, 0xc7, 0x02]);
        expected[18..].copy_from_slice(&[0x96, 0x08]);
        assert_eq!(encode("mxfp4:ef=off", &gradient), expected);
        assert_eq!(residual("mxfp4", &gradient)[..4], [2.0, -1.0, -0.5, 0.5]);
        assert_eq!(round_trip("mxfp4", &gradient)[32..], [1.0, -0.125, 0.0]);
        assert!(encode("mxfp4", &[]).is_empty());
    }

    #[test]
    fn the_ends_of_the_range() {
        // 1.99·2^127 is cut to 1.5·2^127; multiples of 2^−128 are exact.
        let top = 1.5 * 2f32.powi(127);
        assert_eq!(encode("mxfp4", &[f32::MAX, f32::MIN]), [127 + 125, 0xf7]);
        assert_eq!(round_trip("mxfp4", &[f32::MAX, f32::MIN]), [top, -top]);
        let tiny = [1.0, 3.0, 0.5].map(|x: f32| x * 2f32.powi(-128));
        assert_eq!(encode("mxfp4", &tiny), [0, 0x31, 0]);
        assert_eq!(residual("mxfp4", &tiny), [0.0, 0.0, 2f32.powi(-129)]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let corrupt = |bytes: &[u8]| {
            assert!(matches!(refused("mxfp4", 3, bytes), DecodeError::Corrupt(_)), "{bytes:x?}");
        };
        assert_eq!(refused("mxfp4", 3, &[127, 1]), DecodeError::Truncated);
        assert_eq!(refused("mxfp4", 3, &[127, 1, 1, 1]), DecodeError::Trailing { extra: 1 });
        corrupt(&[127 + 126, 1, 1]);
        corrupt(&[255, 1, 1]);
        corrupt(&[127, 1, 0x11]);
    }
}
