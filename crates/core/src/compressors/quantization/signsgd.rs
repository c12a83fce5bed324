//! `signsgd`: signs, combined by majority vote.
//!
//! `bit = (g ≥ 0)`; a message decodes to ±1. The gradient of a step is the sign of the weighted
//! mean of the ranks' messages: +1 or −1 by majority, and 0 on a tie. So the learning rate is the
//! length of every step, as in Adam. The computed sum of n weights of 1/n is within n·2⁻²⁵ of the
//! exact sum, and the smallest majority has a mean of 1/n. Means of magnitude below 2⁻¹³ count as
//! ties, which separates ties from majorities for up to 4095 ranks.
//!
//! - **Message**: d bits, least significant first, the last byte padded with zeros.
//! - **Aggregation**: majority vote. Under scatter-reduce owners send the result as signs; a tie
//!   counts as +1. Servers vote too; with `efsignsgd` they compress the model changes that workers
//!   pull.
//! - **Error feedback**: off.
//! - **Cost**: one pass of 4 bytes per element.
//! - **Hierarchies**: nodes vote instead of ranks: a node's vote is the sign of its mean gradient,
//!   with the weight of all its ranks.
//!
//! Reference: Bernstein, Wang, Azizzadenesheli, Anandkumar: "signSGD: Compressed Optimisation for
//! Non-Convex Problems", ICML 2018.

use std::sync::Arc;

use gradwire_bits::DecodeError;

use super::two_levels;
use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::memories::{Average, Memory};
use crate::{
    Aggregation, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee,
    Properties, Statistics,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "signsgd",
    summary: "the sign, with majority vote",
    formula: "x̂ = sign(c), 1 of 0; the step uses the sign of the mean over ranks",
    family: Family::Quantization,
    reference: "Bernstein et al., ICML 2018",
    payload: "d bits",
    properties: |_| Properties { value_bits: Some(1), ..Properties::DEFAULT },
    ..Entry::new(
        &[],
        |_| Guarantee::Neither("a sign has no size: it is a vote"),
        |_| Arc::new(SignSgd { memory: None }),
    )
};

/// Means of smaller magnitude are ties, up to rounding.
const TIE: f32 = 1.0 / 8192.0;

/// The values of the bits 0 and 1.
const LEVELS: [f32; 2] = [-1.0, 1.0];

/// The sign of each mean, 0 on a tie.
fn majority(means: &mut [f32]) {
    for mean in means {
        *mean = if mean.abs() < TIE { 0.0 } else { 1f32.copysign(*mean) };
    }
}

/// Signs, of gradients or of their running mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignSgd {
    /// The running mean, for signum.
    pub memory: Option<Average>,
}

impl Compressor for SignSgd {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        two_levels::encode(source, LEVELS, workspace, message);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        two_levels::decode_add(message, LEVELS.map(|level| weight * level), workspace, out)
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::Vote(majority)
    }

    fn max_len(&self, elements: usize) -> usize {
        two_levels::len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_mul(8)
    }

    fn memory(&self) -> Option<&dyn Memory> {
        self.memory.as_ref().map(|memory| memory as &dyn Memory)
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The message itself.
impl DenseForm for SignSgd {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        two_levels::check(args.from, args.elements)?;
        copy(args.from, args.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, round_trip};

    #[test]
    fn bits_are_signs() {
        let gradient = [0.0, -1.0, 2.0, -3.0, 4.0, -0.0, 1e-40, -1e-40, -1.0];
        assert_eq!(encode("signsgd", &gradient), [0b0111_0101, 0]);
        let signs = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0];
        assert_eq!(round_trip("signsgd", &gradient), signs);
        assert!(encode("signsgd", &[]).is_empty());
    }

    #[test]
    fn the_majority_decides_and_a_tie_is_nothing() {
        let mut mean = [1.0 / 3.0, -1.0, 0.0, -0.0, 1.0 / 4095.0];
        majority(&mut mean);
        assert_eq!(mean, [1.0, -1.0, 0.0, 0.0, 1.0]);
    }

    /// Six shares of a sixth, three of them negative, add up to 0 in some orders and to 3·10⁻⁸ in
    /// others.
    #[test]
    fn ties_are_ties_in_every_order() {
        for ranks in 1..=12u32 {
            let share = 1.0 / ranks as f32;
            for ballot in 0..1u32 << ranks {
                let sign = |rank| if ballot >> rank & 1 == 1 { share } else { -share };
                let mut mean = [(0..ranks).map(sign).sum()];
                majority(&mut mean);
                let ahead = 2 * ballot.count_ones() as i32 - ranks as i32;
                assert_eq!(mean[0], ahead.signum() as f32, "{ranks} ranks, {ballot:b}");
            }
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |bytes: &[u8]| refused("signsgd", 3, bytes);
        assert_eq!(result(&[]), DecodeError::Truncated);
        assert_eq!(result(&[1, 0]), DecodeError::Trailing { extra: 1 });
        assert_eq!(result(&[8]), DecodeError::Corrupt("a padding bit is set"));
    }
}
