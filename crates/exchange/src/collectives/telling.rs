//! How a rank tells the others that its values are not finite: in place of its messages, by a
//! header that differs from theirs. So no exchange of flags precedes an average.

use std::time::Instant;

use super::collective::Reduction;
use crate::{ExchangeError, Operation, Phase, Result};

impl Reduction<'_> {
    /// Looks at the result of encoding. A value that is not finite, or becomes so with the
    /// residual, is no error if this rank [tells](Self::tells) the others.
    pub(super) fn note(&mut self, encoded: Result<()>) -> Result<()> {
        use gradwire::Error::{NonFinite, Overflow};
        match encoded {
            Err(ExchangeError::Codec(NonFinite { .. } | Overflow { .. })) if self.tells => {
                self.finite = false;
                Ok(())
            }
            encoded => encoded,
        }
    }

    /// Sends a message, or tells that this rank's values are not finite. Call it before the first
    /// [`recv`](Self::recv).
    pub(super) fn send(
        &mut self,
        to: usize,
        operation: Operation<'_>,
        message: &[u8],
    ) -> Result<()> {
        let (operation, message) = self.sent(operation, message);
        self.wire(|transport| transport.send(to, operation, message))
    }

    /// [Sends](Self::send) the same message to all other ranks.
    pub(super) fn send_to_others(
        &mut self,
        operation: Operation<'_>,
        message: &[u8],
    ) -> Result<()> {
        let (operation, message) = self.sent(operation, message);
        self.wire(|transport| transport.send_to_others(operation, message))
    }

    fn sent<'m>(&self, operation: Operation<'m>, message: &'m [u8]) -> (Operation<'m>, &'m [u8]) {
        if self.finite { (operation, message) } else { (self.operation(Phase::Check), &[]) }
    }

    /// Waits for a message, or for the news that a rank's values are not finite.
    pub(super) fn recv(
        &mut self,
        from: usize,
        operation: Operation<'_>,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let (_, header) = self.wire(|transport| {
            let until = Instant::now() + transport.deadline();
            transport.recv_any(&[from], operation, until, into)
        })?;
        if self.tells && into.is_empty() && header.matches(self.operation(Phase::Check)) {
            self.finite = false;
            return Ok(());
        }
        self.transport.endpoint().check(from, header, operation)
    }
}
