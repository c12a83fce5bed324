//! DGC's momentum correction.

use super::{Encoding, Memory, Step, for_blocks};
use crate::{Coverage, Floats, NonFinite, Residual, Velocity};

/// The clipped gradient is added to a velocity, `u ← m·u + g`, and the velocity to the residual,
/// `v ← v + u`, which is compressed; both become 0 for sent elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    /// Momentum m, in \[0, 1).
    pub momentum: f32,
    /// The clipping norm: each of n ranks clips its gradient to n^(−1/2) times this norm; 0 does
    /// not clip.
    pub clip: f32,
}

impl Memory for Momentum {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, velocity, kept, scratch, .. } = step;
        let (_, residual) = feedback.expect("momentum correction is error feedback");
        let factor = match self.clip {
            0.0 => 1.0,
            clip => {
                let limit = f64::from(clip) / f64::from(encoding.context().ranks).sqrt();
                clipping(input.gradient, limit, scratch)
            }
        };
        let weights = Velocity { momentum: self.momentum, factor };
        let feedback = Some((Residual::PLAIN, residual));
        let latest = (weights, &mut *velocity);
        let source = encoding.source_of_velocity(input.gradient, latest, feedback, scratch)?;
        let sent = encoding.encode(&mut source.with_kept(kept))?;
        encoding.clear_sent(sent, velocity);
        Ok(sent)
    }

    fn keeps_velocity(&self) -> bool {
        true
    }

    fn replaces_momentum(&self) -> bool {
        self.momentum > 0.0
    }
}

/// The factor that clips a gradient's norm to `limit`; 1 if it is no larger.
fn clipping(gradient: Floats<'_>, limit: f64, scratch: &mut [f32]) -> f32 {
    let mut squares = 0.0;
    for_blocks(gradient, scratch, |_, block| {
        squares += block.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
    });
    let norm = f64::sqrt(squares);
    if norm > limit { (limit / norm) as f32 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_lowers_norms_and_never_raises_them() {
        let mut scratch = vec![0.0; crate::SCRATCH];
        let gradient = [3.0, 0.0, -4.0];
        let mut factor = |limit| clipping(Floats::F32(&gradient), limit, &mut scratch);
        assert_eq!([factor(2.5), factor(5.0), factor(9.0)], [0.5, 1.0, 1.0]);
    }
}
