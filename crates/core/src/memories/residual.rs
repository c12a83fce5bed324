//! The plain residual.

use super::{Encoding, Memory, Scope, Step};
use crate::{NonFinite, Sent, Source};

/// Keep `m ← c − decoded(message)`, and compress `c = β·m + γ·g` instead of the gradient `g`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Weight β of the residual, in \[0, 1\].
    pub beta: f32,
    /// Weight γ of the gradient, positive.
    pub gamma: f32,
}

impl Residual {
    /// The usual residual, β = γ = 1.
    pub const PLAIN: Self = Self { beta: 1.0, gamma: 1.0 };
}

impl Memory for Residual {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Sent, NonFinite> {
        let source = Source::new(step.input.gradient, step.feedback, step.scratch)?;
        let mut source = source.with_kept(step.own).with_plain_memory(step.plain);
        Ok(encoding.encode(&mut source))
    }

    fn scope(&self) -> Scope {
        Scope::Always
    }
}
