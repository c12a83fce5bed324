//! EF21: messages carry changes of an estimate that receivers keep.

use super::{Encoding, Memory, Step, for_blocks};
use crate::{Coverage, Floats, NonFinite, Residual, Velocity};

/// The change `c = Q(v − h)` of an estimate h of v is sent, and `h ← h + c`. Receivers add up the
/// means of the messages. Their sum, the mean of all ranks' h, replaces the mean gradient.
///
/// Without momentum v is the gradient (Richtárik, Sokolov, Fatkhullin: "EF21: A New, Simpler,
/// Theoretically Better, and Practically Faster Error Feedback", NeurIPS 2021, Algorithm 2). With
/// momentum it is the running mean `v ← m·v + (1 − m)·g` (Fatkhullin, Tyurin, Richtárik: "Momentum
/// Provably Improves Error Feedback!", NeurIPS 2023, Algorithm 1, EF21-SGDM, whose η is 1 − m).
///
/// The residual's array holds the estimate. The encoding leaves `v − h − c` in it, which gives c
/// and the new h.
///
/// Deviation: EF21-SGDM starts v and h with a gradient; here both start at 0, as h does in EF21.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ef21 {
    /// Momentum m, in \[0, 1); 0 is EF21, above it is EF21-SGDM.
    pub momentum: f32,
}

/// The estimate before the encoding.
#[derive(Debug, Default)]
struct Before(Vec<f32>);

/// The weights of `g − h`.
const DIFFERENCE: Residual = Residual { beta: -1.0, gamma: 1.0 };

impl Memory for Ef21 {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, velocity, kept, scratch, .. } = step;
        let (_, estimate) = feedback.expect("EF21 is error feedback");
        let Before(before) = encoding.buffers();
        before.clear();
        before.extend_from_slice(estimate);
        let feedback = Some((DIFFERENCE, &mut *estimate));
        let source = match self.momentum {
            0.0 => encoding.source(input.gradient, feedback, scratch)?,
            momentum => {
                let latest = (Velocity::mean(momentum), &mut *velocity);
                encoding.source_of_velocity(input.gradient, latest, feedback, scratch)?
            }
        };
        let sent = encoding.encode(&mut source.with_kept(kept))?;
        let target = match self.momentum {
            0.0 => input.gradient,
            _ => Floats::F32(velocity),
        };
        let Before(before) = encoding.buffers();
        for_blocks(target, scratch, |start, block| {
            let arrays = before[start..].iter().zip(&mut estimate[start..]);
            for (v, (&before, h)) in block.iter().zip(arrays) {
                // For unsent elements exactly the previous estimate, as at the receivers.
                *h = (before + ((v - before) - *h)).clamp(f32::MIN, f32::MAX);
            }
        });
        Ok(sent)
    }

    fn keeps_velocity(&self) -> bool {
        self.momentum > 0.0
    }

    fn sends_changes(&self) -> bool {
        true
    }
}
