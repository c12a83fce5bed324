//! A training run: workers, each with its replica and its shard of the data, exchanging compressed gradients.
//!
//! [`run`] takes a [`RunConfig`] and returns a [`RunRecord`], with workers as threads; [`run_rank`] is one rank that is
//! a process of its own. An [`Observer`] watches and can stop it.

mod apart;
mod batches;
mod cause;
mod clip;
mod company;
mod config;
mod diagnosis;
mod error;
mod exam;
mod gate;
mod learner;
mod local;
mod meeting;
mod order;
mod outcome;
mod overlap;
#[cfg(test)]
mod overlap_tests;
mod parts;
mod rating_batches;
#[cfg(test)]
mod rating_tests;
mod record;
mod recorder;
mod remote;
#[cfg(test)]
mod remote_tests;
mod rounds;
mod session;
mod setup;
mod svrg;
#[cfg(test)]
mod svrg_tests;
mod text_batches;
mod worker;

#[cfg(test)]
mod mask_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text_tests;

use std::path::PathBuf;

use gradwire_exchange::Link;

use gradwire_models::data::{Content, Dataset};

pub use crate::settings::{Payload, Straggler};
pub use config::RunConfig;
pub use diagnosis::{Diagnosis, Histogram, Layer, LayerDiagnosis};
pub use error::TrainError;
pub(crate) use learner::Learner;
pub use record::{Evaluation, Metric, RunRecord, Sent, StepRecord, TrafficEstimate};
pub use remote::{deadline, run_rank};

/// Watches a run. All calls but [`stop`](Self::stop) come from the thread that called [`run`].
pub trait Observer: Send + Sync {
    /// A step of `total` is complete at all workers.
    fn step(&self, record: &StepRecord, total: u64) {
        let _ = (record, total);
    }

    /// The global model has been evaluated.
    fn evaluated(&self, evaluation: &Evaluation) {
        let _ = evaluation;
    }

    /// Something looks wrong, though the run goes on: a configuration that contradicts itself, a residual
    /// that grows without bound.
    fn warned(&self, warning: &str) {
        let _ = warning;
    }

    /// Whether to end the run at the next exchange. Asked once a step, from a worker's thread.
    fn stop(&self) -> bool {
        false
    }
}

/// An observer that looks away.
impl Observer for () {}

/// What does not change the result of a run, only its surroundings.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Throttles each rank to this link for real; `None` leaves memory speed.
    pub link: Option<Link>,
    /// Writes checkpoints.
    pub save: Option<Save>,
    /// Goes on from this checkpoint, of the same configuration; where it is damaged, from the newest good one before
    /// it.
    pub resume: Option<PathBuf>,
}

/// When and where checkpoints are written. Each takes the place of the one before, which moves to `<path>.1` and on.
#[derive(Debug, Clone)]
pub struct Save {
    /// The file.
    pub path: PathBuf,
    /// Steps between checkpoints, at the first exchange each interval is over; 0: only at the end,
    /// and when the run is stopped.
    pub every: u64,
    /// How many stay, the newest included; 0 is taken for 1.
    pub keep: usize,
}

/// Steps in which workers with such batches see the training data once: at least a part of one.
pub fn steps_per_epoch(data: &Dataset, workers: usize, batch: usize) -> f64 {
    match &data.content {
        Content::Images(images) => images.train.len() as f64 / (workers * batch) as f64,
        Content::Ratings(ratings) => ratings.train.len() as f64 / (workers * batch) as f64,
        Content::Text(text) => {
            text_batches::steps_per_epoch(text.train.len(), workers, batch).max(1) as f64
        }
    }
}

/// Trains, and evaluates at the end.
///
/// Deterministic: the same configuration gives the same bits (backup workers excepted), whatever the
/// number of cores; a run resumed from a checkpoint gives the bits of one never stopped.
///
/// # Errors
/// See [`TrainError`]. All threads have ended when this returns; where several fail, the error is
/// that of the first.
pub fn run(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
) -> Result<RunRecord, TrainError> {
    session::run(config, observer, options, &|_, exchange| exchange)
}
