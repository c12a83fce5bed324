//! Momentum before compression: a running mean of the gradients.

use super::velocity::accelerate;
use super::{Encoding, Memory, Scope, Step};
use crate::{Floats, NonFinite, Sent};

/// `z ← δ·z + (1 − δ)·g`; every message compresses all of z. With error feedback there is also a residual. It is Signum's
/// memory, and that of any compressor with the parameter `momentum`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// Weight δ of the previous mean, in \[0, 1).
    pub decay: f32,
}

impl Memory for Average {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Sent, NonFinite> {
        let Step { input, feedback, velocity, kept, scratch, .. } = step;
        let weights = [self.decay, 1.0 - self.decay];
        let residual = feedback.as_ref().map(|(weights, residual)| (*weights, &**residual));
        accelerate(input.gradient, weights, velocity, residual, scratch)?;
        // All elements are finite by now, so an error cannot follow the new mean.
        let source = encoding.source(Floats::F32(velocity), feedback, scratch)?;
        encoding.encode(&mut source.with_kept(kept))
    }

    fn scope(&self) -> Scope {
        Scope::Gradients
    }

    fn keeps_velocity(&self) -> bool {
        true
    }

    fn replaces_momentum(&self) -> bool {
        self.decay > 0.0
    }
}
