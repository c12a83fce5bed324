//! `efsignsgd`: the sign of every element, times the mean absolute value.
//!
//! An element decodes to sign(c)·‖c‖₁ / d, and the sign of 0 is +.
//!
//! - **Message**: the mean as f32, then d bits, least significant first, 1 for elements at or above
//!   zero, the last byte padded with zeros: 1·d + 32 bits. The mean of an empty tensor is 0.
//! - **Error feedback**: on; it is part of the method. It sends the lost magnitudes in later steps;
//!   without it, the method may not converge.
//! - **Limits**: a mean below 2⁻¹⁴⁹ becomes 0, and so do all decoded elements.
//! - **Deviations**: one mean per tensor, as in the paper's experiments; its Algorithm 1 has one
//!   for the model. The paper multiplies gradients by the learning rate before they enter the
//!   memory; `gamma` can do this.
//! - **Cost**: 8 bytes per element for the mean, 12 for the signs.
//!
//! Reference: Karimireddy, Rebjock, Stich, Jaggi: "Error Feedback Fixes SignSGD and other Gradient
//! Compression Schemes", ICML 2019.

use std::sync::Arc;

use super::sign_means::{PROPERTIES, SignMeans};
use crate::{Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "efsignsgd",
    summary: "the sign, times the mean absolute value",
    formula: "x̂ = sign(c)·‖c‖₁/d",
    family: Family::Quantization,
    error_feedback: true,
    reference: "Karimireddy et al., ICML 2019",
    payload: "mean f32, d bits",
    passes: Passes::TWO,
    properties: |_| PROPERTIES,
    ..Entry::new(&[], |_| Guarantee::Contractive, |_| Arc::new(SignMeans::Absolute))
};

#[cfg(test)]
mod tests {
    use crate::DecodeError;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn bits_and_mean_are_those_worked_by_hand() {
        // Mean of 0, 1, 2, 3 and 4: 2 (0x40000000).
        let gradient = [-0.0, -1.0, 2.0, -3.0, 4.0];
        assert_eq!(encode("efsignsgd", &gradient), [0, 0, 0, 0x40, 0b10101]);
        assert_eq!(round_trip("efsignsgd", &gradient), [2.0, -2.0, 2.0, -2.0, 2.0]);
        assert_eq!(residual("efsignsgd", &gradient), [-2.0, 1.0, 0.0, -1.0, 2.0]);
    }

    #[test]
    fn nine_elements_need_a_second_byte() {
        let mut gradient = [-0.5; 9];
        gradient[8] = 0.5;
        assert_eq!(encode("efsignsgd", &gradient), [0, 0, 0, 0x3f, 0, 1]);
        assert_eq!(encode("efsignsgd", &[]), [0; 4]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |bytes: &[u8]| refused("efsignsgd", 3, bytes);
        assert_eq!(result(&[0, 0, 0, 0x3f]), DecodeError::Truncated);
        assert_eq!(result(&[0, 0, 0, 0x3f, 1, 0]), DecodeError::Trailing { extra: 1 });
        let padded = DecodeError::Corrupt("a padding bit is set");
        assert_eq!(result(&[0, 0, 0, 0x3f, 8]), padded);
        assert!(matches!(result(&[0, 0, 0, 0xbf, 1]), DecodeError::Corrupt(_)));
        assert!(matches!(result(&[0, 0, 0x80, 0x7f, 1]), DecodeError::Corrupt(_)));
    }
}
