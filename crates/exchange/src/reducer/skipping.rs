//! Steps that all ranks skip, because a rank has a value that is not finite.

use super::Reducer;
use crate::{Operation, Phase, Result, Transport};

impl Reducer {
    /// Whether the step is skipped, because a rank's values or earlier ones are not finite, which
    /// ranks tell each other. If so, the averages of this step are rolled back.
    pub(super) fn skips(&mut self, step: u64, finite: bool) -> Result<bool> {
        if self.skipping {
            return Ok(true);
        }
        match some_non_finite(&mut *self.transport, step, finite)? {
            true => self.skip(),
            false => self.copy_state(),
        }
        Ok(self.skipping)
    }

    /// Skips the step in progress, and rolls back its averages.
    pub(super) fn skip(&mut self) {
        self.skipping = true;
        if self.copied {
            self.codecs.rollback();
        }
    }

    /// Copies the state of the codecs, unless this step has done so.
    pub(super) fn copy_state(&mut self) {
        if !std::mem::replace(&mut self.copied, true) {
            self.codecs.checkpoint();
        }
    }
}

/// Whether some rank has a value that is not finite.
fn some_non_finite(transport: &mut dyn Transport, step: u64, finite: bool) -> Result<bool> {
    let mut flags = vec![Vec::new(); transport.size()];
    flags[transport.rank()].push(u8::from(!finite));
    transport.all_gather_v(Operation::whole(Phase::Check, step), &mut flags)?;
    Ok(flags.iter().any(|flag| flag.as_slice() != [0]))
}
