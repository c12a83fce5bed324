//! `signum`: signs of the gradients' running mean, and the majority decides.
//!
//! `z ← δ·z + (1 − δ)·g` on every rank; the sign of z is sent, and votes as in [`signsgd`](super::signsgd). No
//! residual is taken from z: it is momentum, not error feedback.
//!
//! - **Message**: d bits, as `signsgd`.
//! - **Range**: momentum δ in \[0, 1); 0 is `signsgd`.
//! - **Error feedback**: off; with it, what signs leave out of z + residual is kept beside z.
//! - **Cost**: 4 bytes an element for a check, 12 for the running mean, 4 for its check, 4 for the signs.
//!
//! Reference: Bernstein, Zhao, Azizzadenesheli, Anandkumar: "signSGD with Majority Vote is Communication Efficient
//! and Fault Tolerant", ICLR 2019.

use std::sync::Arc;

use super::signsgd::SignSgd;
use crate::memory;
use crate::registry::{Ends, Guarantees, Kind, Param};
use crate::{Aggregation, Entry, Family, Memory};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    id: "signum",
    summary: "the sign of the running mean; the majority decides",
    formula: "x̂ = sign(z), z ← δ·z + (1 − δ)·g; a step goes by the sign of the ranks' mean",
    family: Family::Quantization,
    aggregation: Aggregation::Vote,
    error_feedback: false,
    parameters: &[Param {
        key: "momentum",
        kind: Kind::Real { min: 0.0, max: 1.0, ends: Ends::Lower, default: 0.9 },
        help: "weight of the running mean in the next",
    }],
    reference: "Bernstein et al., ICLR 2019",
    payload: "d bits",
    guarantees: Guarantees { unbiased: false, lossless: false },
    build: |values| {
        let decay = memory::momentum(values.real("momentum"));
        Arc::new(SignSgd { memory: Some(Memory::Average { decay }) })
    },
};

#[cfg(test)]
mod tests {
    use crate::{Encoder, Floats, Spec, Tensor};

    #[test]
    fn signs_follow_the_running_mean() {
        let spec: Spec = "signum:momentum=0.5".parse().unwrap();
        let (mut encoder, tensor) = (Encoder::new(&spec, 1, 0), Tensor::new("t", &[2]));
        // z: 1, then 1/2·1 − 1/2·½ = ¼, then ⅛ − ½; the other element the other way round.
        for (step, g, bits) in [(0, 2.0, 0b01), (1, -0.5, 0b01), (2, -1.0, 0b10)] {
            let mut message = Vec::new();
            encoder.encode(&tensor, step, Floats::F32(&[g, -g]), &mut message).unwrap();
            assert_eq!(message, [bits], "step {step}");
        }
        assert!(encoder.residual("t").is_none());
    }
}
