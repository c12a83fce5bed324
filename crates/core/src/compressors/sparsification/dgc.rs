//! `dgc`: deep gradient compression.
//!
//! - **Memory**: momentum correction (section 3.2): the clipped gradient is added to a velocity,
//!   `u ← m·u + g`, and the velocity to the residual, `v ← v + u`, which is compressed. Momentum
//!   factor masking (3.3): u and v become 0 for sent elements. The optimizer must not apply
//!   momentum again.
//! - **Local clipping** (3.2): each of N ranks clips the ℓ2 norm of its gradient to clip·N^(−1/2),
//!   tensor by tensor; 0 does not clip. The paper clips the whole gradient; the trainer's `--clip`
//!   does this, ahead of the memory.
//! - **Warm-up** of the ratio (3.3): over the first `warmup` steps it falls exponentially from a
//!   quarter to `ratio`.
//! - **Selection**: the elements that reach a threshold estimated from a random sample (the
//!   hierarchical selection of section 5). If more than 1.25·k elements reach it, the exact
//!   threshold among them replaces it. If fewer than 0.8·k do, the threshold is lowered by a fifth,
//!   at most three times; this bounds the bottleneck that the survey of Xu et al. 2020 found. At
//!   most 2k elements are sent.
//! - **Message**: as `topk`.
//! - **Range**: ratio in (0, 1], momentum in \[0, 1); up to 2³² − 1 elements.
//! - **Error feedback**: on, as above; if off, the method is `topk` with a sampled threshold.
//! - **Deviations**: with warm-up the ratio falls at every step; in the paper it falls to a quarter
//!   after each of four epochs, or within one (section 4.1). The sample is 1/256 of the elements,
//!   but at least 4096, in runs of 16; in the paper 0.1 to 1 % at random. Of more than 2k elements,
//!   the first 2k are sent.
//! - **Cost**: 12 bytes per element for each count (usually one), and 20 to select.
//!
//! Reference: Lin, Han, Mao, Wang, Dally: "Deep Gradient Compression: Reducing the Communication
//! Bandwidth for Distributed Training", ICLR 2018.

use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use gradwire_bits::{DecodeError, kernels};

use super::fraction;
use super::topk::TopK;
use crate::device::{DeviceArgs, DeviceForm};
use crate::memories::{Memory, Momentum};
use crate::numeric::selection::{self, among, sampled_threshold};
use crate::parameters::{Kind, Parameters, real, whole};
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes,
    Properties, Source, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "dgc",
    summary: "deep gradient compression: the largest elements of a momentum-corrected residual",
    formula: "x̂ = v at the k largest |v|, where u and v become 0; u ← m·u + g, v ← v + u",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &["ratio=0.02", "ratio=0.02,clip=1,warmup=10", "ratio=0.05,clip=1,warmup=3"],
    reference: "Lin et al., ICLR 2018",
    payload: "code u8, count varint, values f32, positions",
    passes: Passes { memory: 8, ..Passes::TWO },
    properties: |_| Properties { value_bits: Some(32), ..Properties::DEFAULT },
    ..Entry::new(
        Params::PARAMETERS,
        |_| Guarantee::Contractive,
        |values| {
            let Params { ratio, momentum, clip, warmup } = Params::new(values);
            Arc::new(Dgc { ratio, warmup, memory: Momentum { momentum, clip } })
        },
    )
};

crate::parameters! {
    /// The parameters of [`Dgc`] with momentum correction.
    struct Params {
        /// fraction of elements to send
        ratio: f64 = RATIO,
        /// momentum of the velocity
        momentum: f32 = real(0.9, Included(0.0), Excluded(1.0)),
        /// clip gradients to this norm divided by the square root of the number of ranks; 0 does
        /// not clip
        clip: f32 = real(0.0, Included(0.0), Included(1e30)),
        /// warm-up: steps over which the ratio falls from 0.25
        warmup: u64 = WARMUP,
    }
}

pub(super) const RATIO: Kind = real(0.001, Excluded(0.0), Included(1.0));
pub(super) const WARMUP: Kind = whole(0, 0..=1_000_000_000);

/// The ratio that a warm-up begins with.
const FIRST: f64 = 0.25;
/// The most times that a threshold is lowered.
const ADJUSTMENTS: usize = 3;

/// Selection by an estimated threshold from the accumulated values of a memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dgc<M> {
    pub(super) ratio: f64,
    pub(super) warmup: u64,
    pub(super) memory: M,
}

impl<M> Dgc<M> {
    /// The selection at a step.
    fn at(&self, step: u64) -> TopK {
        let ratio = if step < self.warmup && self.ratio < FIRST {
            FIRST * (self.ratio / FIRST).powf(step as f64 / self.warmup as f64)
        } else {
            self.ratio
        };
        TopK { ratio, sampled: true, code: None }
    }

    /// The selection that sends most. Decoding uses it as a bound, because the warm-up's powers
    /// differ in their last bits between machines.
    fn widest(&self) -> TopK {
        let ratio = if self.warmup > 0 { self.ratio.max(FIRST) } else { self.ratio };
        TopK { ratio, sampled: true, code: None }
    }
}

/// A threshold that about k elements reach; `None` if an element is not finite.
fn adjusted(
    source: &mut Source<'_>,
    k: usize,
    mut threshold: f32,
    workspace: &mut Workspace,
) -> Option<f32> {
    let (few, many) = (0.8 * k as f64, 1.25 * k as f64);
    for lowered in 0..=ADJUSTMENTS {
        let below = threshold.next_down().max(0.0);
        let mut count = 0;
        source.merge_parts(1, workspace, &mut count, |source, count| {
            source.peek_blocks(|_, block| *count += kernels::count_above(block, below));
        });
        if lowered == 0 && !source.ends_check() {
            return None;
        }
        if count as f64 > many {
            let candidates = &mut workspace.own::<selection::SelectionBuffers>().candidates;
            return Some(among(source, k, below, candidates));
        }
        if count as f64 >= few || lowered == ADJUSTMENTS {
            break;
        }
        threshold *= 0.8;
    }
    Some(threshold)
}

impl<M: Memory> Compressor for Dgc<M> {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let selection = self.at(context.step);
        let mut threshold = 0.0;
        if !source.is_empty() {
            let k = fraction::kept(selection.ratio, source.len());
            let candidates = &mut workspace.own::<selection::SelectionBuffers>().candidates;
            // At most as many as are sent, so the buffer stops growing after the first step.
            candidates.clear();
            candidates.reserve(selection.most(source.len()) + BLOCK);
            let sampled = sampled_threshold(source, k, &mut context.rng(0), candidates);
            let Some(adjusted) = adjusted(source, k, sampled, workspace) else {
                return Coverage::All;
            };
            threshold = adjusted;
        }
        selection.send_reaching(source, threshold, workspace, message)
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        self.widest().decode_add(args)
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(&self.memory)
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::Peeked
    }

    fn max_len(&self, elements: usize) -> usize {
        self.widest().max_len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.widest().max_elements(message_len)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The form of the step's `topk`.
impl<M: Memory> DeviceForm for Dgc<M> {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        self.at(args.context.step).pack(args)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        self.widest().unpack(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Floats;
    use crate::compressors::testing::Sender;

    /// The messages of a tensor and the residuals after them.
    fn encoder(
        spec: &str,
        elements: usize,
        ranks: u32,
    ) -> impl FnMut(u64, &[f32]) -> (Vec<u8>, Vec<f32>) {
        let mut sender = Sender::new(spec, &[elements]);
        sender.encoder = sender.encoder.with_ranks(ranks);
        move |step, gradient| (sender.encode(step, gradient), sender.residual().to_vec())
    }

    #[test]
    fn momentum_goes_into_the_residual_and_is_forgotten_where_sent() {
        let mut encode = encoder("dgc:ratio=0.25,momentum=0.5", 4, 1);
        // v = u = g; the largest is sent: a bitmap, one value, bit 1.
        let (message, residual) = encode(0, &[1.0, 4.0, 0.0, -2.0]);
        assert_eq!(message, [0, 1, 0, 0, 0x80, 0x40, 0b10]);
        assert_eq!(residual, [1.0, 0.0, 0.0, -2.0]);
        // u = 0.5·(1, 0, 0, −2) + (0, 1, 0, 0), v = (1.5, 1, 0, −3); the last is sent.
        let (message, residual) = encode(1, &[0.0, 1.0, 0.0, 0.0]);
        assert_eq!(message, [0, 1, 0, 0, 0x40, 0xc0, 0b1000]);
        assert_eq!(residual, [1.5, 1.0, 0.0, 0.0]);
        // u = (0.25, 0.5, 0, 0): neither sent element has kept its momentum.
        assert_eq!(encode(2, &[0.0; 4]).1, [0.0, 1.5, 0.0, 0.0]);
    }

    #[test]
    fn gradients_are_clipped_by_the_square_root_of_the_ranks() {
        // The norm 5 is clipped to 2 / √4.
        let mut encode = encoder("dgc:ratio=0.5,clip=2", 2, 4);
        let (message, residual) = encode(0, &[3.0, -4.0]);
        assert_eq!(&message[2..6], (-0.8f32).to_le_bytes());
        assert!((residual[0] - 0.6).abs() < 1e-6);
    }

    #[test]
    fn the_ratio_falls_from_a_quarter() {
        let mut encode = encoder("dgc:ratio=0.01,warmup=10", 4000, 1);
        let gradient: Vec<f32> = (0..4000).map(|at| ((at * 37 % 4000) as f32) - 2000.0).collect();
        let mut sent = |step| -> usize {
            let before = encode(step, &gradient).1;
            before.iter().filter(|x| **x == 0.0).count()
        };
        // The sample is the whole of such a small tensor, which has one 0.
        assert!((1000..=1002).contains(&sent(0)));
        // √(0.25 · 0.01) = 0.05 half way.
        assert!((199..=203).contains(&sent(5)));
        assert!((39..=43).contains(&sent(10)));
    }

    #[test]
    fn a_threshold_that_misses_is_adjusted() {
        let values: Vec<f32> = (0..10_000).map(|at| 1.0 + (at * 7919 % 10_000) as f32).collect();
        let mut scratch = vec![0.0; crate::SCRATCH];
        let floats = Floats::F32(&values);
        let mut source = Source::new(floats, None, &mut scratch).unwrap();
        let mut reach = |threshold: f32| {
            let threshold =
                adjusted(&mut source, 1000, threshold, &mut Workspace::default()).unwrap();
            values.iter().filter(|x| **x >= threshold).count()
        };
        assert_eq!(reach(9001.0), 1000);
        assert_eq!(reach(100.0), 1000, "too many: exact among those");
        assert_eq!(reach(9900.0), 1000, "too few, then too many");
        assert_eq!(reach(11_300.0), 961, "too few: a fifth lower");
        // Lowered by a fifth at most three times.
        assert_eq!(reach(1e9), 0);
    }
}
