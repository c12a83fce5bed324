//! `mxfp8`: 8-bit floats in blocks of 32 with a power of two as their scale (OCP Microscaling).
//!
//! `scale = 2^(⌊log2 max|c|⌋ − emax)` in each block, limited to 2^−127 and above, with the exponent
//! emax of the largest element: 8 for E4M3, 15 for E5M2. `q` is the element nearest to `c / scale`
//! (ties to even, at most ±448 or ±57344), decoded as `scale·q`. Scales and decoded elements are
//! exact in binary32. The tensor is cut in row-major order, and the last block may be shorter.
//!
//! - **Message**: for each block the exponent of the scale plus 127 as a byte (E8M0), then the
//!   elements as bytes: 8.25·d bits.
//! - **Error**: at most a 16th of the element with E4M3, an eighth with E5M2. A largest element
//!   above 448 or 57344 times the scale is cut: by at most an eighth. Elements below 2^−6 or 2^−14
//!   times the scale have the absolute error 2^−10 or 2^−17 times the scale.
//! - **Error feedback**: on.
//! - **Limits**: the least scale is 2^−127, also for zeros. With it elements of at most 2^−137
//!   (E4M3) or 2^−144 (E5M2) become zero. Zeros keep their sign.
//! - **Deviations**: none. NVIDIA's Transformer Engine rounds scales up instead, so it cuts no
//!   element.
//! - **Cost**: 4 bytes per element; with error feedback 8 to check first, and 12 to quantize.
//!
//! Reference: Open Compute Project: "OCP Microscaling Formats (MX) Specification", version 1.0,
//! 2023, section 6.3; Rouhani et al.: "Microscaling Data Formats for Deep Learning",
//! arXiv:2310.10537.

use std::sync::Arc;

use gradwire_bits::kernels::BlockScaled;

use super::block_scaled::{self, Microscaling};
use crate::parameters::{Choice, Parameters, choice};
use crate::{Entry, Family, Guarantee};

pub(crate) static ENTRY: Entry = Entry {
    id: "mxfp8",
    summary: "8-bit floats in blocks of 32 with a power of two as their scale",
    formula: "x̂ = s·(c/s rounded to E4M3 or E5M2, cut to ±m), s = 2^(⌊log2 max|c|⌋ − ⌊log2 m⌋) of the block, m = 448 or 57344",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["element=e5m2", "ef=off"],
    reference: "OCP Microscaling Formats 1.0",
    payload: "for each block of 32 a scale E8M0, d × FP8",
    properties: |values| block_scaled::properties(Mxfp8::new(values).format()),
    ..Entry::new(
        Mxfp8::PARAMETERS,
        |_| Guarantee::Contractive,
        |values| Arc::new(Microscaling(Mxfp8::new(values).format())),
    )
};

/// The format of an element.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Element {
    E4m3,
    E5m2,
}

impl Choice for Element {
    const WORDS: &'static [&'static str] = &["e4m3", "e5m2"];
    const VALUES: &'static [Self] = &[Element::E4m3, Element::E5m2];
}

crate::parameters! {
    /// 8-bit floats in blocks.
    pub struct Mxfp8 {
        /// 4 bits of exponent and 3 of mantissa, or 5 and 2
        element: Element = choice::<Element>(),
    }
}

impl Mxfp8 {
    fn format(&self) -> BlockScaled {
        match self.element {
            Element::E4m3 => BlockScaled::Mxfp8E4m3,
            Element::E5m2 => BlockScaled::Mxfp8E5m2,
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire_bits::DecodeError;

    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn blocks_by_hand() {
        // Three blocks, the last of one element. In the first one the largest is 3 = 1.5·2^1, so
        // the scale is 2^−7: 3 is 384 = 1.5·2^8, code 15·8 + 4; −2^−7 is −1, code 7·8. The largest
        // of the second, 511·2^−8, is cut to 448·2^−8. The third has the scale 2^(127 − 8).
        let mut gradient = [0.0; 65];
        (gradient[0], gradient[31]) = (3.0, -2f32.powi(-7));
        (gradient[32], gradient[63]) = (511.0 / 256.0, -0.0);
        gradient[64] = f32::MAX;
        let mut expected = [0; 3 + 65];
        expected[..3].copy_from_slice(&[127 - 7, 127 - 8, 127 + 119]);
        (expected[3], expected[3 + 31]) = (15 * 8 + 4, 0x80 | (7 * 8));
        (expected[3 + 32], expected[3 + 63], expected[3 + 64]) = (0x7e, 0x80, 0x7e);
        assert_eq!(encode("mxfp8:ef=off", &gradient), expected);
        let left = residual("mxfp8", &gradient);
        assert_eq!((left[0], left[31], left[32]), (0.0, 0.0, 63.0 / 256.0));
        assert_eq!(left[64], f32::MAX - 1.75 * 2f32.powi(127));
        assert_eq!(round_trip("mxfp8", &gradient)[..2], [3.0, 0.0]);
        assert!(encode("mxfp8", &[]).is_empty());
    }

    #[test]
    fn e5m2_by_hand() {
        // The scale is 2^(1 − 15); 3 is 1.5·2^15, code 30·4 + 2; −1 is 2^14, code 29·4.
        let expected = [127 - 14, 30 * 4 + 2, 0x80 | (29 * 4)];
        assert_eq!(encode("mxfp8:element=e5m2", &[3.0, -1.0]), expected);
        assert_eq!(round_trip("mxfp8:element=e5m2", &[3.0, -1.0]), [3.0, -1.0]);
    }

    #[test]
    fn the_least_scale() {
        // 1.5·2^−136 is between 1 and 2 units of 2^−136, and 2 is even; 2^−137 becomes 0.
        let tiny = [1.5, 1.0, 0.5, -0.5].map(|x: f32| x * 2f32.powi(-136));
        assert_eq!(encode("mxfp8", &tiny), [0, 2, 1, 0, 0x80]);
        assert_eq!(residual("mxfp8", &tiny), [-0.5, 0.0, 0.5, -0.5].map(|x| x * 2f32.powi(-136)));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let corrupt = |spec, bytes: &[u8]| {
            assert!(matches!(refused(spec, 2, bytes), DecodeError::Corrupt(_)), "{bytes:x?}");
        };
        assert_eq!(refused("mxfp8", 2, &[127, 1]), DecodeError::Truncated);
        assert_eq!(refused("mxfp8", 2, &[127, 1, 1, 1]), DecodeError::Trailing { extra: 1 });
        // The largest scales, then NaN and infinity.
        corrupt("mxfp8", &[127 + 120, 1, 1]);
        corrupt("mxfp8", &[255, 1, 1]);
        corrupt("mxfp8:element=e5m2", &[127 + 113, 1, 1]);
        corrupt("mxfp8", &[127, 1, 0x7f]);
        corrupt("mxfp8", &[127, 0xff, 1]);
        corrupt("mxfp8:element=e5m2", &[127, 0x7c, 1]);
        corrupt("mxfp8:element=e5m2", &[127, 1, 0xfd]);
    }
}
