//! Signs with means: the compressor that `efsignsgd` and `onebit` share.
//!
//! A message has one or two means as f32, then a bit per element: least significant first, 1 for
//! elements at or above zero, the last byte padded with zeros.

use gradwire_bits::DecodeError;

use super::two_levels;
use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::wire::fields;
use crate::{Compressor, Coverage, DecodeArgs, EncodeArgs, Properties, Source, Statistics};

/// The properties of both.
pub(super) const PROPERTIES: Properties = Properties { value_bits: Some(1), ..Properties::DEFAULT };

/// The decoded values of the signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignMeans {
    /// The mean absolute value, with the sign.
    Absolute,
    /// The mean of the elements below zero, and the mean of the others.
    EachSide,
}

impl SignMeans {
    /// Bytes of the means.
    fn header(self) -> usize {
        match self {
            SignMeans::Absolute => 4,
            SignMeans::EachSide => 8,
        }
    }

    /// Appends the means, and returns the levels of the bits 0 and 1.
    fn put(self, source: &mut Source<'_>, message: &mut Vec<u8>) -> [f32; 2] {
        let sums = source.sums_by_sign();
        let elements = source.len() as u64;
        if self == SignMeans::Absolute {
            let sum = sums.positive_sum - sums.negative_sum;
            // Rounding must not lift the mean above the largest absolute value.
            let mean = ((sum / elements.max(1) as f64) as f32).min(source.abs_max());
            fields::put_f32(mean, message);
            return [-mean, mean];
        }
        let mean = |sum: f64, count| if count == 0 { 0.0 } else { (sum / count as f64) as f32 };
        let others = elements - sums.negative_count;
        let levels =
            [mean(sums.negative_sum, sums.negative_count), mean(sums.positive_sum, others)];
        fields::put_f32s(&levels, message);
        levels
    }

    /// Splits the means off the front of a message, and returns the levels of the bits 0 and 1.
    fn take(self, message: &mut &[u8]) -> Result<[f32; 2], DecodeError> {
        if self == SignMeans::Absolute {
            let mean = fields::take_scale(message)?;
            return Ok([-mean, mean]);
        }
        Ok([fields::take_finite(message)?, fields::take_finite(message)?])
    }
}

impl Compressor for SignMeans {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let levels = self.put(source, message);
        two_levels::encode(source, levels, workspace, message);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let levels = self.take(&mut message)?.map(|level| weight * level);
        two_levels::decode_add(message, levels, workspace, out)
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::Signs
    }

    fn max_len(&self, elements: usize) -> usize {
        two_levels::len(elements) + self.header()
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_sub(self.header()).saturating_mul(8)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DenseForm for SignMeans {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let mut bits = args.from;
        self.take(&mut bits)?;
        two_levels::check(bits, args.elements)?;
        copy(args.from, args.to)
    }
}
