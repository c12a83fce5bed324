//! The plain residual.

use super::{Encoding, Memory, Scope, Step};
use crate::{Coverage, NonFinite, Residual};

impl Memory for Residual {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, kept, scratch, plain, .. } = step;
        let source = encoding.source(input.gradient, feedback, scratch)?;
        encoding.encode(&mut source.with_kept(kept).with_plain_memory(plain))
    }

    fn scope(&self) -> Scope {
        Scope::Always
    }
}
