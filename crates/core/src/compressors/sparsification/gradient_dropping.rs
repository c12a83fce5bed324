//! `gradient-dropping`: the fraction of elements with the largest absolute values, 0.001 by
//! default; the rest stays in the residual.
//!
//! This is [`topk`](super::topk) under its original name and with its paper's ratio; messages,
//! memory and costs are the same. The paper estimates the threshold from a sample, as
//! `select=sampled` does; the default is exact, to compare methods at equal sparsity.
//!
//! Reference: Aji, Heafield: "Sparse Communication for Distributed Gradient Descent", EMNLP 2017,
//! section 3.

use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use super::topk::TopK;
use crate::parameters::{Parameters, either, real};
use crate::{Entry, Family, Guarantee, Passes, Properties};

pub(crate) static ENTRY: Entry = Entry {
    id: "gradient-dropping",
    summary: "the 0.1 % of the elements with the largest absolute values",
    formula: "x̂ = c at the k largest |c|, 0 elsewhere, k = round(ratio·d)",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &["select=sampled"],
    reference: "Aji, Heafield, EMNLP 2017",
    payload: "code u8, count varint, values f32, positions",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(32), ..Properties::DEFAULT },
    ..Entry::new(
        GradientDropping::PARAMETERS,
        |_| Guarantee::Contractive,
        |values| {
            let GradientDropping { ratio, sampled } = GradientDropping::new(values);
            Arc::new(TopK { ratio, sampled, code: None })
        },
    )
};

crate::parameters! {
    /// The parameters of [`TopK`].
    struct GradientDropping {
        /// fraction of elements to send
        ratio: f64 = real(0.001, Excluded(0.0), Included(1.0)),
        /// exactly the k largest elements, or those above a threshold estimated from a random
        /// sample
        sampled("select"): bool = either(&["exact", "sampled"]),
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{Sender, encode, residual};

    #[test]
    fn one_of_a_thousand_is_sent() {
        let mut gradient = vec![0.25; 1000];
        gradient[700] = -2.0;
        // Raw and Golomb-coded positions: 4 bytes against 1 for b and 2 for 700 at b* = 9.
        let expected = [1, 1, 0, 0, 0, 0xc0, 9, 0b1111_0001, 0b10];
        assert_eq!(encode("gradient-dropping", &gradient), expected);
        assert_eq!(residual("gradient-dropping", &gradient)[699..702], [0.25, 0.0, 0.25]);
    }

    #[test]
    fn it_is_topk_by_another_name() {
        let gradient: Vec<f32> = (0..5000).map(|at| (at as f32).sin()).collect();
        let pairs = [
            ("gradient-dropping", "topk:ratio=0.001"),
            ("gradient-dropping:ratio=0.1,select=sampled", "topk:ratio=0.1,select=sampled"),
        ];
        for (name, topk) in pairs {
            assert_eq!(encode(name, &gradient), encode(topk, &gradient));
        }
    }

    #[test]
    fn what_is_dropped_adds_up_until_it_is_the_largest() {
        let mut sender = Sender::new("gradient-dropping:ratio=0.25", &[4]);
        for (step, value, bitmap, left) in [
            (0, -1.5f32, 0b0010, [1.0, 0.0, 0.5, 0.0]),
            // c = (2, −1.5, 1, 0), and so on.
            (1, 2.0, 0b0001, [0.0, -1.5, 1.0, 0.0]),
            (2, -3.0, 0b0010, [1.0, 0.0, 1.5, 0.0]),
            // The first of equal ones: c = (2, −1.5, 2, 0).
            (3, 2.0, 0b0001, [0.0, -1.5, 2.0, 0.0]),
        ] {
            let expected = [&[0, 1][..], &value.to_le_bytes(), &[bitmap]].concat();
            assert_eq!(sender.encode(step, &[1.0, -1.5, 0.5, 0.0]), expected, "step {step}");
            assert_eq!(sender.residual(), left, "step {step}");
        }
    }
}
