//! `efsignsgd`: the sign of every element, times the mean absolute value.
//!
//! An element decodes to sign(c)·‖c‖₁ / d, and the sign of 0 is +.
//!
//! - **Message**: the mean as f32, then d bits, least significant first, 1 for elements at or above
//!   zero, the last byte padded with zeros: 1·d + 32 bits. The mean of an empty tensor is 0.
//! - **Error feedback**: on; it is part of the method. It sends the lost magnitudes in later steps; without it the
//!   method may not converge.
//! - **Limits**: a mean below 2⁻¹⁴⁹ is 0, and then nothing is sent.
//! - **Deviations**: one mean per tensor, as in the paper's experiments; its Algorithm 1 has one for the model. The
//!   paper multiplies gradients by the learning rate before they enter the memory; `gamma` can do this.
//! - **Cost**: 8 bytes per element for the mean, 12 for the signs.
//!
//! Reference: Karimireddy, Rebjock, Stich, Jaggi: "Error Feedback Fixes SignSGD and other Gradient
//! Compression Schemes", ICML 2019.

use std::sync::Arc;

use gradwire_bits::DecodeError;

use super::two_levels;
use crate::device::{DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{
    Compressor, DecodeArgs, EncodeArgs, Entry, Family, Passes, Properties, Sent, Source, Statistics,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "efsignsgd",
    summary: "the sign, times the mean absolute value",
    formula: "x̂ = sign(c)·‖c‖₁/d",
    family: Family::Quantization,
    error_feedback: true,
    reference: "Karimireddy et al., ICML 2019",
    payload: "mean f32, d bits",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(1), is_contractive: true, ..Properties::DEFAULT },
    ..Entry::new(&[], |_| Arc::new(EfSignSgd))
};

const HEADER: usize = 4;

/// Signs with one mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EfSignSgd;

/// The mean absolute value.
fn mean(source: &mut Source<'_>) -> f32 {
    let sums = source.sums_by_sign();
    let sum = sums.positive_sum - sums.negative_sum;
    // Rounding must not lift the mean above the largest absolute value.
    ((sum / source.len().max(1) as f64) as f32).min(source.abs_max())
}

impl Compressor for EfSignSgd {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Sent {
        let EncodeArgs { source, workspace, message, .. } = args;
        let mean = mean(source);
        fields::put_f32(mean, message);
        two_levels::encode(source, [-mean, mean], workspace, message);
        Sent::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let mean = weight * fields::take_scale(&mut message)?;
        two_levels::decode_add(message, [-mean, mean], workspace, out)
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::Signs
    }

    fn max_len(&self, elements: usize) -> usize {
        two_levels::len(elements) + HEADER
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_sub(HEADER).saturating_mul(8)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DeviceForm for EfSignSgd {
    fn pack(
        &self,
        form: &[u8],
        args: DeviceArgs<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, DecodeError> {
        two_levels::copy(form, (1, fields::take_scale), args.elements, message)
    }

    fn unpack(
        &self,
        message: &[u8],
        args: DeviceArgs<'_>,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        two_levels::copy(message, (1, fields::take_scale), args.elements, form).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
