//! The plain residual.

use super::{Encoding, Memory, Scope, Step};
use crate::{NonFinite, Residual, Sent, Source};

impl Memory for Residual {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Sent, NonFinite> {
        let Step { input, feedback, kept, scratch, plain, .. } = step;
        let source = if feedback.is_none() && encoding.one_pass {
            Source::unchecked(input.gradient, scratch)
        } else {
            Source::new(input.gradient, feedback, scratch)?
        };
        let mut source = source.with_kept(kept).with_plain_memory(plain);
        let sent = encoding.encode(&mut source);
        source.finish()?;
        Ok(sent)
    }

    fn scope(&self) -> Scope {
        Scope::Always
    }
}
