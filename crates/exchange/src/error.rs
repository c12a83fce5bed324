//! The errors of an exchange.

use std::time::Duration;

use crate::{Operation, Phase};

/// The result of an operation of an exchange.
pub type Result<T, E = ExchangeError> = std::result::Result<T, E>;

/// The reason why an exchange cannot continue. It names the rank and the operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// A peer is gone: its thread or process ended.
    #[error(
        "rank {peer} is gone (during {operation}); see the message of that rank for the reason, \
         and resume from the last checkpoint"
    )]
    PeerLost {
        /// The peer.
        peer: usize,
        /// The operation of this rank.
        operation: String,
    },
    /// A peer sent nothing within the deadline.
    #[error(
        "no answer from rank {peer} within {deadline:?} (during {operation}); it is stuck or too \
         slow: look at that rank, or raise the deadline"
    )]
    Deadline {
        /// The peer.
        peer: usize,
        /// The operation of this rank.
        operation: String,
        /// How long it waited.
        deadline: Duration,
    },
    /// A peer has not left a stopped run, and this rank no longer waits for it.
    #[error(
        "rank {peer} has not left the run {waited:?} after the run was stopped; see the message \
         of that rank for the reason, and end its process if it stays"
    )]
    StillThere {
        /// The peer.
        peer: usize,
        /// How long this rank waited, which may be less than the deadline.
        waited: Duration,
    },
    /// A peer sent something this rank did not expect.
    #[error(
        "rank {peer} sent something unexpected (during {operation}): {what}; were all ranks started with the same version \
         and configuration?"
    )]
    Protocol {
        /// The peer.
        peer: usize,
        /// The operation of this rank.
        operation: String,
        /// A description of the message.
        what: String,
    },
    /// A configuration that cannot work.
    #[error("{0}")]
    Config(String),
    /// Gradients cannot be computed from values that are multiplied by this scale of a loss.
    #[error(
        "the scale of the loss is {0}, and gradients cannot be divided by it; scale the loss by a finite number other than 0"
    )]
    Scale(f32),
    /// The parameters of ranks differ.
    #[error("{0}")]
    Diverged(String),
    /// The exchange has ended, by an earlier error or because it was closed.
    #[error("the exchange has ended: {0}")]
    Ended(String),
    /// The system or a device refuses a resource of the exchange, such as a thread.
    #[error("{0}")]
    System(String),
    /// A tensor or message was refused.
    #[error(transparent)]
    Codec(#[from] gradwire::Error),
    /// Saved state does not fit.
    #[error(transparent)]
    State(#[from] gradwire::StateError),
}

impl ExchangeError {
    /// A [`Config`](Self::Config) error.
    pub fn config(reason: impl Into<String>) -> Self {
        Self::Config(reason.into())
    }

    /// A [`PeerLost`](Self::PeerLost) error.
    pub fn lost(peer: usize, operation: impl ToString) -> Self {
        Self::PeerLost { peer, operation: operation.to_string() }
    }

    /// A [`Deadline`](Self::Deadline) error.
    pub fn late(peer: usize, operation: impl ToString, deadline: Duration) -> Self {
        // Rounded: the error shows the whole deadline, not the time that is left a moment later.
        let deadline = Duration::from_millis((1e3 * deadline.as_secs_f64()).round() as u64);
        Self::Deadline { peer, operation: operation.to_string(), deadline }
    }

    /// A [`Protocol`](Self::Protocol) error.
    pub fn protocol(peer: usize, operation: impl ToString, what: impl ToString) -> Self {
        Self::Protocol { peer, operation: operation.to_string(), what: what.to_string() }
    }

    /// The error of decoding a peer's message; it blames the peer if the message is malformed.
    pub(crate) fn decoding(peer: usize, phase: Phase, step: u64, error: gradwire::Error) -> Self {
        match error {
            gradwire::Error::Message { tensor, source, .. } => {
                let operation = Operation::whole(phase, step);
                Self::protocol(
                    peer,
                    operation,
                    format!("a message for tensor '{tensor}': {source}"),
                )
            }
            other => other.into(),
        }
    }

    /// The thread that held the rank's transport is gone.
    pub(crate) fn ended() -> Self {
        Self::Ended(
            "its thread is gone; see the message of that thread for the reason, and resume from the last checkpoint"
                .to_owned(),
        )
    }

    /// The rank to blame: the peer that the error names, or `own`.
    pub fn culprit(&self, own: usize) -> usize {
        match self {
            ExchangeError::PeerLost { peer, .. }
            | ExchangeError::Deadline { peer, .. }
            | ExchangeError::StillThere { peer, .. }
            | ExchangeError::Protocol { peer, .. } => *peer,
            _ => own,
        }
    }
}

/// Fails with a [`Config`](ExchangeError::Config) error.
pub(crate) fn refuse<R>(reason: impl Into<String>) -> Result<R> {
    Err(ExchangeError::config(reason))
}
