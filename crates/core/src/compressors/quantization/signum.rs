//! `signum`: signs of the gradients' running mean, combined by majority vote.
//!
//! `z ← δ·z + (1 − δ)·g` on every rank; the sign of z is sent as a vote, as in
//! [`signsgd`](super::signsgd). Nothing is subtracted from z: it is momentum, not error feedback.
//!
//! - **Message**: d bits, as `signsgd`.
//! - **Range**: momentum δ in \[0, 1); 0 is `signsgd`.
//! - **Error feedback**: off; with it, the signs of z + residual are sent, and the difference
//!   becomes the residual.
//! - **Cost**: 4 bytes per element to check the gradient, 12 for the running mean and its signs.
//!
//! Reference: Bernstein, Zhao, Azizzadenesheli, Anandkumar: "signSGD with Majority Vote is
//! Communication Efficient and Fault Tolerant", ICLR 2019.

use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use super::signsgd::SignSgd;
use crate::memories::Average;
use crate::parameters::{Parameters, real};
use crate::{Entry, Family, Guarantee, Passes, Properties};

pub(crate) static ENTRY: Entry = Entry {
    id: "signum",
    summary: "the sign of the running mean, with majority vote",
    formula: "x̂ = sign(z), z ← δ·z + (1 − δ)·g; the step uses the sign of the mean over ranks",
    family: Family::Quantization,
    reference: "Bernstein et al., ICLR 2019",
    payload: "d bits",
    passes: Passes { memory: 8, ..Passes::ONE },
    properties: |_| Properties { value_bits: Some(1), ..Properties::DEFAULT },
    ..Entry::new(
        Signum::PARAMETERS,
        |_| Guarantee::Neither("a sign has no size: it is a vote"),
        |values| {
            let Signum { momentum: decay } = Signum::new(values);
            Arc::new(SignSgd { memory: Some(Average { decay }) })
        },
    )
};

crate::parameters! {
    /// Signs of the running mean.
    struct Signum {
        /// weight of the previous running mean
        momentum: f32 = real(0.9, Included(0.0), Excluded(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::Sender;
    use crate::{Error, Floats, Kept, State, Tensor};

    #[test]
    fn signs_follow_the_running_mean() {
        let mut sender = Sender::new("signum:momentum=0.5", &[2]);
        // z: 1, then 1/2·1 − 1/2·½ = ¼, then ⅛ − ½; the other element has the opposite signs.
        for (step, g, bits) in [(0, 2.0, 0b01), (1, -0.5, 0b01), (2, -1.0, 0b10)] {
            assert_eq!(sender.encode(step, &[g, -g]), [bits], "step {step}");
        }
        assert!(sender.encoder.residual("t").is_none());
    }

    #[test]
    fn a_mean_outlasts_its_first_gradient_until_half_of_it_has_faded() {
        let mut sender = Sender::new("signum", &[1]);
        // z = 1 after 10, then 2·0.9ⁿ − 1 after n times −1: 0.9⁶ = 0.531 and 0.9⁷ = 0.478.
        for (step, bits) in (0..9).zip([1, 1, 1, 1, 1, 1, 1, 0, 0]) {
            let gradient = [if step == 0 { 10.0 } else { -1.0 }];
            assert_eq!(sender.encode(step, &gradient), [bits], "step {step}");
        }
    }

    #[test]
    fn a_mean_from_elsewhere_is_refused_if_it_is_not_finite() {
        let mut sender = Sender::new("signum", &[2]);
        sender.encode(0, &[1.0, -1.0]);
        let mut encode = |mean: [f32; 2], step| {
            sender.encoder.set_array("t", Kept::Velocity, Some(mean.to_vec()));
            let (tensor, mut message) = (Tensor::new("t", &[2]), Vec::new());
            let gradient = Floats::F32(&[1.0, 1.0]);
            let encoded = sender.encoder.encode(&tensor, step, gradient, &mut message);
            encoded.map(|_| message)
        };
        let Err(Error::Overflow { index: 1, value, .. }) = encode([0.0, f32::NAN], 1) else {
            panic!("a mean that is not a number was taken")
        };
        assert!(value.is_nan());
        assert_eq!(encode([0.0, -9.0], 1).unwrap(), [0b01]);
    }

    #[test]
    fn a_restored_mean_is_refused_if_it_is_not_finite() {
        let mut state = State::new();
        state.set_number("encoder", 1);
        state.set_setting("spec/t", "signum");
        state.set_floats("velocity/t", vec![0.0, f32::NAN]);
        let Sender { mut encoder, tensor } = Sender::new("signum", &[2]);
        let refused = encoder.restore("", &state).unwrap_err().to_string();
        assert!(refused.contains("'velocity/t' is damaged: element 1 is NaN"), "{refused}");
        // A bad mean from outside, such as a device, is refused when it is used.
        encoder.set_array("t", Kept::Velocity, Some(vec![0.0, f32::NAN]));
        let encoded = encoder.encode(&tensor, 0, Floats::F32(&[1.0, 1.0]), &mut Vec::new());
        assert!(matches!(encoded, Err(Error::Overflow { index: 1, .. })), "{encoded:?}");
    }

    #[test]
    fn error_feedback_is_beside_the_mean() {
        let mut sender = Sender::new("signum:momentum=0.5,ef=on", &[2]);
        for (step, gradient, bits, residual) in [
            // z = c = (2, −½): signs + and −.
            (0, [4.0, -1.0], 0b01, [1.0, 0.5]),
            // z = (1 − 1, −¼ + ½), c = z + (1, ½) = (1, ¾).
            (1, [-2.0, 1.0], 0b11, [0.0, -0.25]),
            // z = (0, ⅛ − 5/4), c = z + (0, −¼) = (0, −11/8); the sign of 0 is +.
            (2, [0.0, -2.5], 0b01, [-1.0, -0.375]),
        ] {
            assert_eq!(sender.encode(step, &gradient), [bits], "step {step}");
            assert_eq!(sender.residual(), residual, "step {step}");
        }
    }
}
