//! `sgc`: sparse gradient compression with long-term momentum.
//!
//! - **Memory**: gradients are summed, `u_k = u_{k−1} + ε·g_k`, and `v_k = α·u_{k−1} + u_k` is
//!   compressed; older gradients have a larger weight than the latest. u becomes 0 for sent
//!   elements. A sent element is the sum of all its unsent gradients, and the earlier ones count
//!   1 + α times; so, unlike plain error feedback, messages add up to more than the gradients. The
//!   residual is u: for an element not yet sent, the sum of its gradients times ε.
//! - **Selection, message, range, warm-up**: as [`dgc`](super::dgc).
//! - **Error feedback**: on, as above; if off, the method is `topk` with a sampled threshold.
//! - **Cost**: 8 bytes per element for each count (usually one), 12 to select and 20 for the
//!   memory.
//!
//! The definition follows the survey of Xu et al. 2020, section 3.2; masking u at sent elements is
//! our reading of its "sparsified similarly to DGC".
//!
//! Reference: Sun et al.: "Sparse Gradient Compression for Distributed SGD", DASFAA 2019.

use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use super::dgc::{Dgc, RATIO, WARMUP};
use crate::memories::LongTerm;
use crate::parameters::{Parameters, real};
use crate::{Entry, Family, Guarantee, Passes, Properties};

pub(crate) static ENTRY: Entry = Entry {
    id: "sgc",
    summary: "sparse gradient compression: the largest elements of a sum with long-term momentum",
    formula: "x̂ = v at the k largest |v|, where u becomes 0; v = α·u_before + u, u ← u + ε·g",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &["ratio=0.02", "ratio=0.3"],
    reference: "Sun et al., DASFAA 2019",
    payload: "code u8, count varint, values f32, positions",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(32), ..Properties::DEFAULT },
    ..Entry::new(
        Params::PARAMETERS,
        |_| Guarantee::Contractive,
        |values| {
            let Params { ratio, epsilon, alpha, warmup } = Params::new(values);
            Arc::new(Dgc { ratio, warmup, memory: LongTerm { epsilon, alpha } })
        },
    )
};

crate::parameters! {
    /// The parameters of [`Dgc`] with long-term momentum.
    struct Params {
        /// fraction of elements to send
        ratio: f64 = RATIO,
        /// weight of the gradient
        epsilon: f32 = real(1.0, Included(1e-6), Included(1e6)),
        /// momentum: weight of the sum before this gradient
        alpha: f32 = real(0.9, Included(0.0), Excluded(1.0)),
        /// warm-up: steps over which the ratio falls from 0.25
        warmup: u64 = WARMUP,
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::Sender;

    #[test]
    fn sums_gather_and_what_is_sent_counts_the_past_more() {
        let mut sender = Sender::new("sgc:ratio=0.25,epsilon=2,alpha=0.5", &[4]);
        // u = v = 2·g; 4 is sent.
        let message = sender.encode(0, &[0.5, 2.0, 0.0, -1.0]);
        assert_eq!(message, [0, 1, 0, 0, 0x80, 0x40, 0b10]);
        assert_eq!(sender.residual(), [1.0, 0.0, 0.0, -2.0]);
        // u = (1, 0.5, 0, −2), v = u + 0.5·(1, 0, 0, −2) = (1.5, 0.5, 0, −3); −3 is sent.
        let message = sender.encode(1, &[0.0, 0.25, 0.0, 0.0]);
        assert_eq!(message, [0, 1, 0, 0, 0x40, 0xc0, 0b1000]);
        assert_eq!(sender.residual(), [1.0, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn of_equal_sums_the_older_one_is_sent() {
        let mut sender = Sender::new("sgc:ratio=0.5,epsilon=0.5,alpha=0.25", &[4]);
        for (step, gradient, message, sums) in [
            // u = v = g / 2 = (4, −2, 1, ½).
            (
                0,
                [8.0, -4.0, 2.0, 1.0],
                &[0, 2, 0, 0, 0x80, 0x40, 0, 0, 0, 0xc0, 0b0011][..],
                [0.0, 0.0, 1.0, 0.5],
            ),
            // u = (1, 0, 2, 1), v = u + ¼·(0, 0, 1, ½) = (1, 0, 2.25, 1.125).
            (
                1,
                [2.0, 0.0, 2.0, 1.0],
                &[0, 2, 0, 0, 0x10, 0x40, 0, 0, 0x90, 0x3f, 0b1100],
                [1.0, 0.0, 0.0, 0.0],
            ),
            // v = (1.25, 0, 0, 0); zeros are not sent.
            (2, [0.0; 4], &[0, 1, 0, 0, 0xa0, 0x3f, 0b0001], [0.0; 4]),
        ] {
            assert_eq!(sender.encode(step, &gradient), message, "step {step}");
            assert_eq!(sender.residual(), sums, "step {step}");
        }
    }
}
