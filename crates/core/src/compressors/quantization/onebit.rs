//! `onebit`: the sign of every element, decoded to the mean of the elements on its side.
//!
//! `bit = (c ≥ 0)`; 1 decodes to the mean of the elements ≥ 0, and 0 to the mean of the elements
//! < 0. These means minimise the squared error for the two sets.
//!
//! - **Message**: mean of the negative side f32, mean of the other side f32, then d bits, least
//!   significant first, the last byte padded with zeros: 1·d + 64 bits. The mean of an empty side
//!   is 0.
//! - **Error feedback**: on. Without it ResNet-8 lost 41.0 ± 2.5 points (three seeds), the
//!   perplexity of an LSTM rose by 3.3, and neural collaborative filtering gained 4.7 points (one
//!   seed each, `results/grace-feedback`).
//! - **Limits**: a mean below 2⁻¹⁴⁹ is 0, and then its side is not sent.
//! - **Deviations**: one pair of means per tensor; the paper has one per column of a matrix; the
//!   threshold is fixed at 0, as the paper recommends.
//! - **Cost**: 8 bytes per element for the means, 12 for the signs.
//!
//! Reference: Seide, Fu, Droppo, Li, Yu: "1-Bit Stochastic Gradient Descent and its Application to
//! Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014.

use std::sync::Arc;

use super::sign_means::{PROPERTIES, SignMeans};
use crate::{Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "onebit",
    summary: "the sign, decoded to the mean of the elements with that sign",
    formula: "x̂ = mean of the elements ≥ 0 where c ≥ 0, mean of those < 0 where c < 0",
    family: Family::Quantization,
    error_feedback: true,
    reference: "Seide et al., Interspeech 2014 (3LC's \"MQE 1-bit int\")",
    payload: "two means f32, d bits",
    passes: Passes::TWO,
    properties: |_| PROPERTIES,
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(SignMeans::EachSide))
};

#[cfg(test)]
mod tests {
    use crate::DecodeError;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn bits_and_means_are_those_worked_by_hand() {
        // Below zero: -1, -3, mean -2 (0xc0000000). Others: 0, 2, 4, mean 2 (0x40000000).
        let gradient = [0.0, -1.0, 2.0, -3.0, 4.0];
        let message = encode("onebit", &gradient);
        assert_eq!(message, [0, 0, 0, 0xc0, 0, 0, 0, 0x40, 0b10101]);
        assert_eq!(residual("onebit", &gradient), [-2.0, 1.0, 0.0, -1.0, 2.0]);
        assert_eq!(round_trip("onebit", &gradient), [2.0, -2.0, 2.0, -2.0, 2.0]);
    }

    #[test]
    fn an_empty_side_has_mean_zero() {
        assert_eq!(encode("onebit", &[1.0; 9]), [0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0xff, 1]);
        assert_eq!(encode("onebit", &[]), [0; 8]);
    }

    #[test]
    fn padding_bits_must_be_zero() {
        let message = [0, 0, 0, 0xc0, 0, 0, 0, 0x40, 0b1101];
        let padded = DecodeError::Corrupt("a padding bit is set");
        assert_eq!(refused("onebit", 3, &message), padded);
    }
}
