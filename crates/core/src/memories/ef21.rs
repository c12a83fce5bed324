//! EF21: messages carry changes of an estimate that receivers keep.

use super::velocity::{accelerate, for_blocks};
use super::{Encoding, Memory, Step};
use crate::{Floats, NonFinite, Residual, Sent, Source};

/// The change `c = Q(v − h)` of an estimate h of v is sent, and `h ← h + c`. Receivers add up the means of the
/// messages, and that sum, the mean of all ranks' h, takes the place of the mean gradient.
///
/// Without momentum v is the gradient (Richtárik, Sokolov, Fatkhullin: "EF21: A New, Simpler, Theoretically Better, and
/// Practically Faster Error Feedback", NeurIPS 2021, Algorithm 2). With momentum it is the running mean
/// `v ← m·v + (1 − m)·g` (Fatkhullin, Tyurin, Richtárik: "Momentum Provably Improves Error Feedback!", NeurIPS 2023,
/// Algorithm 1, EF21-SGDM, whose η is 1 − m).
///
/// The estimate is the array of the residual: the encoding leaves `v − h − c` in it, and h becomes v less that.
///
/// Deviation: the papers send the first gradient whole; here h starts at 0, so that the first message is compressed, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ef21 {
    /// Momentum m, in \[0, 1); 0 is EF21, above it is EF21-SGDM.
    pub momentum: f32,
}

/// The weights of `g − h`.
const DIFFERENCE: Residual = Residual { beta: -1.0, gamma: 1.0 };

impl Memory for Ef21 {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Sent, NonFinite> {
        let Step { input, feedback, velocity, kept, scratch, .. } = step;
        let (_, estimate) = feedback.expect("EF21 is error feedback");
        let target = match self.momentum {
            0.0 => input.gradient,
            momentum => {
                let weights = [momentum, 1.0 - momentum];
                let check = Some((DIFFERENCE, &*estimate));
                accelerate(input.gradient, weights, velocity, check, scratch)?;
                Floats::F32(velocity)
            }
        };
        let source = Source::new(target, Some((DIFFERENCE, &mut *estimate)), scratch)?;
        encoding.encode(&mut source.with_kept(kept));
        for_blocks(target, scratch, |start, block| {
            for (h, v) in estimate[start..].iter_mut().zip(block) {
                *h = (v - *h).clamp(f32::MIN, f32::MAX);
            }
        });
        // Every element of the sum counts, whichever of them the message changes.
        Ok(Sent::All)
    }

    fn keeps_velocity(&self) -> bool {
        self.momentum > 0.0
    }

    fn sends_changes(&self) -> bool {
        true
    }
}
