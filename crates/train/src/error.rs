//! Why a run ends before its last step.

use std::path::PathBuf;

use gradwire::StateError;
use gradwire_exchange::{CompressionSchedule, ExchangeError};

use gradwire_models::models::ModelError;

use crate::settings::TrainingSettings;

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
    #[error("{what}: the run diverged; {remedy}")]
    Diverged {
        /// The value that is not finite, with its place and step.
        what: String,
        /// The settings that may help.
        remedy: String,
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
    #[error("cannot save the checkpoint {}: {source}", .path.display())]
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

impl TrainError {
    /// The error of a run that diverged because of `what`. It names settings that the run can
    /// change.
    pub fn diverged(
        what: impl Into<String>,
        settings: &TrainingSettings,
        compressor: &CompressionSchedule,
    ) -> Self {
        let warms_up = settings.learning_rate.to_string().contains("warmup");
        let clips = settings.clip.is_some() || settings.overlap || settings.svrg > 0;
        let compresses = compressor.specs().any(|spec| !spec.entry().is_identity());
        // Sparse methods send sums of many gradients late: a short warm-up ends before them.
        let is_sparse = compressor.specs().any(|spec| spec.entry().sparse);
        let warmup = if is_sparse { "0.5" } else { "0.05" };
        let warm_up = format!("begin with a warm-up (warmup={warmup} in --lr)");
        let remedies = [
            (true, "lower the learning rate (--lr)"),
            (!warms_up, warm_up.as_str()),
            (!clips, "clip gradients (--clip)"),
            (compresses, "compress less"),
            // Specs print ef=on only if it is not their default.
            (compressor.to_string().contains("ef=on"), "remove ef=on"),
        ];
        let remedies: Vec<&str> =
            remedies.into_iter().filter_map(|(helps, remedy)| helps.then_some(remedy)).collect();
        Self::Diverged { what: what.into(), remedy: remedies.join(", or ") }
    }
}

fn saved_to(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| format!(", saved to {}", path.display()))
}
