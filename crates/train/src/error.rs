//! Why a run ends before its last step.

use std::path::PathBuf;

use gradwire::StateError;
use gradwire_exchange::ExchangeError;

use gradwire_models::models::ModelError;

/// Why a run could not start or continue. All its threads have ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A configuration that cannot work.
    #[error("{0}")]
    Config(String),
    /// The model does not fit the data.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A rank's exchange failed.
    #[error("rank {rank}: {source}")]
    Exchange {
        /// The rank: workers come first, then servers.
        rank: usize,
        /// The cause.
        source: ExchangeError,
    },
    /// The exchange could not be set up, or a server failed.
    #[error(transparent)]
    Servers(ExchangeError),
    /// A loss or a gradient is not finite.
    #[error(
        "{what}: the run diverged; lower the learning rate, warm up, compress less, or remove ef=on"
    )]
    Diverged {
        /// The value that is not finite, with its place and step.
        what: String,
    },
    /// A worker's thread panicked.
    #[error("worker {rank} crashed: {message}; the other workers were stopped")]
    Panicked {
        /// The worker.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// The observer asked to stop.
    #[error("stopped after {step} steps{}", saved_to(.saved))]
    Stopped {
        /// Steps done.
        step: u64,
        /// The checkpoint that a later run resumes from, if one was asked for.
        saved: Option<PathBuf>,
    },
    /// A checkpoint cannot be written.
    #[error("cannot save the checkpoint {}: {source}; choose another path with --save", .path.display())]
    Save {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: StateError,
    },
    /// A checkpoint cannot be resumed from.
    #[error("cannot resume from {}: {source}", .path.display())]
    Resume {
        /// The checkpoint.
        path: PathBuf,
        /// The fault.
        source: StateError,
    },
}

fn saved_to(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| format!(", saved to {}", path.display()))
}
