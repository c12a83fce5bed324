//! Momentum before compression: a running mean of the gradients.

use super::{Encoding, Memory, Scope, Step};
use crate::{Coverage, NonFinite, Velocity};

/// `z ← δ·z + (1 − δ)·g`; every message compresses all of z. With error feedback there is also a
/// residual. Signum uses this memory, and so does any compressor with the parameter `momentum`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// Weight δ of the previous mean, in \[0, 1).
    pub decay: f32,
}

impl Memory for Average {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, velocity, kept, scratch, .. } = step;
        let velocity = (Velocity::mean(self.decay), velocity);
        let source = encoding.source_of_velocity(input.gradient, velocity, feedback, scratch)?;
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
