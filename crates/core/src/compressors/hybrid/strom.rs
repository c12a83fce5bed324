//! `strom`: the elements above a fixed threshold, each sent as the threshold with its sign.
//!
//! - **Selection**: every element with |c| > τ is sent as τ with its sign. The rest of a large
//!   element stays in the residual and is sent in later steps, τ at a time.
//! - **Message**: a byte with the code of the positions (0 bitmap, 1 Rice, 2 raw), their number as
//!   varint and, unless that is 0, one bit per sign and the positions. τ is not sent: both ends
//!   know it. An empty tensor has an empty message.
//! - **Range**: τ from 10⁻³⁰ to 10³⁰; up to 2³² − 1 elements. The best value depends on the model;
//!   the default 0.01 is for mean gradients, the paper's values are for summed gradients. A server
//!   that averages n workers gets values of about τ/n. With the same τ for pulls, they wait in its
//!   residual for several steps; give pulls a smaller τ.
//! - **Error feedback**: on; the residual of a sent element is c ∓ τ.
//! - **Deviation**: the paper sends 32 bits per element, 31 of them for the position.
//! - **Cost**: 8 bytes per element for the maximum, 12 to select.
//!
//! Reference: Strom: "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
//! Interspeech 2015.

use std::ops::Bound::Included;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::Side;

use super::signs;
use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::take::{clear, take_beyond};
use crate::parameters::real;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Properties, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "strom",
    summary: "the elements above a fixed threshold, decoded to the threshold with their sign",
    formula: "x̂ = τ·sign(c) where |c| > τ, 0 elsewhere",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &["tau=0.125", "tau=2"],
    reference: "Strom, Interspeech 2015",
    payload: "code u8, count varint, signs, positions",
    properties: |_| Properties { value_bits: Some(1), ..Properties::DEFAULT },
    ..Entry::of::<Strom>(|_| {
        Guarantee::Neither(
            "elements below the threshold are not sent, and larger ones only in part",
        )
    })
};

crate::parameters! {
    /// Thresholding to one absolute value.
    pub struct Strom {
        /// the threshold, and the absolute value of the sent elements
        tau: f32 = real(0.01, Included(1e-30), Included(1e30)),
    }
}

impl Compressor for Strom {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        clear(elements, workspace);
        if elements == 0 {
            return Coverage::Positions;
        }
        let left = Some(|value: f32| value - self.tau.copysign(value));
        take_beyond(source, Side::Both, self.tau, left, workspace);
        let Workspace { positions, values, helpers, .. } = workspace;
        signs::write(&[], elements, positions, values, helpers, message);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let Workspace { positions, helpers, .. } = workspace;
        let ([], signs) = signs::read(message, out.len(), out.len(), positions, helpers)?;
        signs::add(signs, [weight * self.tau, weight * -self.tau], positions, out, helpers);
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        signs::max_len::<0>(elements, elements)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Pairs of the elements beyond the threshold; only the signs of the values count.
impl DeviceForm for Strom {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        let pairs = Pairs::<0>::read(form, elements, elements)?;
        let Workspace { positions, values, helpers, .. } = workspace;
        pairs.copy_to(positions, values)?;
        signs::write(&[], elements, positions, values, helpers, message);
        Ok(Coverage::Positions)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        let Workspace { positions, helpers, .. } = workspace;
        let ([], signs) = signs::read(message, elements, elements, positions, helpers)?;
        pairs::write(&[], positions, signs::levels(signs, [self.tau, self.tau]), form)
    }
}

#[cfg(test)]
mod tests {
    use crate::DecodeError;
    use crate::compressors::testing::{Sender, encode, refused, residual, round_trip};

    const GRADIENT: [f32; 10] = [0.5, -3.0, 0.0, 1.0, 2.0, -0.5, 4.0, -1.0, 0.25, -2.0];

    #[test]
    fn a_message_worked_by_hand() {
        // Beyond 1: −3, 2, 4 and −2, as a bitmap; 1 and −1 are not.
        assert_eq!(encode("strom:tau=1", &GRADIENT), [0, 4, 0b1001, 0b0101_0010, 0b10]);
        let decoded = [0.0, -1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -1.0];
        assert_eq!(round_trip("strom:tau=1", &GRADIENT), decoded);
        let left = [0.5, -2.0, 0.0, 1.0, 1.0, -0.5, 3.0, -1.0, 0.25, -1.0];
        assert_eq!(residual("strom:tau=1", &GRADIENT), left);
        // One of twenty, b = 4: gap 17 is quotient 1, remainder 1: bits 1 0, 1 0 0 0.
        let mut gradient = [0.0; 20];
        gradient[17] = -1.0;
        assert_eq!(encode("strom:tau=0.5", &gradient), [1, 1, 1, 4, 0b00_0101]);
    }

    #[test]
    fn what_exceeds_the_threshold_goes_out_a_piece_at_a_time() {
        let mut sender = Sender::new("strom:tau=0.5", &[2]);
        let mut step = |step, gradient: [f32; 2]| {
            sender.encode(step, &gradient);
            (sender.encoder.positions().to_vec(), sender.residual().to_vec())
        };
        assert_eq!(step(0, [1.25, 0.25]), (vec![0], vec![0.75, 0.25]));
        assert_eq!(step(1, [0.0, 0.375]), (vec![0, 1], vec![0.25, 0.125]));
        assert_eq!(step(2, [0.0, 0.0]), (vec![], vec![0.25, 0.125]));
    }

    #[test]
    fn little_and_nothing() {
        assert_eq!(encode("strom", &[0.01; 9]), [2, 0]);
        assert!(encode("strom", &[]).is_empty());
        assert_eq!(round_trip("strom:tau=2", &[f32::MAX, -2.0]), [2.0, 0.0]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |message: &[u8]| refused("strom", 10, message);
        let padding = DecodeError::Corrupt("a padding bit is set");
        assert_eq!(result(&[0, 4, 0b1_1001, 0b0101_0010, 0b10]), padding);
        let many = DecodeError::Corrupt("there are more positions than the configuration allows");
        assert_eq!(result(&[0, 11, 0, 0, 0xff, 3]), many);
        assert_eq!(result(&[2, 0, 0]), DecodeError::Trailing { extra: 1 });
        assert_eq!(result(&[0, 4]), DecodeError::Truncated);
    }
}
