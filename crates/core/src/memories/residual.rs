//! The plain residual.

use super::{Encoding, Memory, Scope, Step};
use crate::{NonFinite, Residual, Sent, Source};

impl Memory for Residual {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Sent, NonFinite> {
        let source = Source::new(step.input.gradient, step.feedback, step.scratch)?;
        let mut source = source.with_kept(step.kept).with_plain_memory(step.plain);
        Ok(encoding.encode(&mut source))
    }

    fn scope(&self) -> Scope {
        Scope::Always
    }
}
