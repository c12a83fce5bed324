//! Watching a run.

use crate::error::TrainError;
use crate::record::{Evaluation, StepRecord};

/// Watches a run. All calls but [`workers`](Self::workers) and [`stop`](Self::stop) come from the
/// thread that called [`run`](crate::run()).
pub trait Observer: Send + Sync {
    /// All workers have completed a step; the run has `total` steps.
    fn step(&self, record: &StepRecord, total: u64) {
        let _ = (record, total);
    }

    /// The global model has been evaluated.
    fn evaluated(&self, evaluation: &Evaluation) {
        let _ = evaluation;
    }

    /// The digest of the parameters after this number of steps; see
    /// [`digest_at`](crate::RunRecord::digest_at).
    fn digested(&self, steps: u64, digest: &str) {
        let _ = (steps, digest);
    }

    /// Something looks wrong, but the run continues: a configuration that contradicts itself, or a
    /// residual that grows without bound.
    fn warned(&self, warning: &str) {
        let _ = warning;
    }

    /// The checkpoint after the last step could not be written. The run has ended all the same, and
    /// its record is whole. Earlier checkpoints that cannot be written end the run.
    fn unsaved(&self, error: &TrainError) {
        self.warned(&error.to_string());
    }

    /// This process now keeps the record: the first worker was lost, and the run goes on. Only in
    /// runs with [`min_workers`](crate::TrainingSettings::min_workers) whose ranks are processes,
    /// before any other call tells of it.
    fn leads(&self) {}

    /// The number of workers that the run should go on with from the next exchange, more or fewer
    /// than now; `None` leaves the number as it is. Called like [`stop`](Self::stop), in runs with
    /// [`min_workers`](crate::TrainingSettings::min_workers) whose workers are threads. New workers
    /// take the model and the optimizer's state from the others and begin without a residual; the
    /// residuals of workers that leave go to those that stay. Numbers below `min_workers`, or with
    /// which the run [cannot work](crate::check()), are ignored.
    fn workers(&self) -> Option<usize> {
        None
    }

    /// Whether to end the run at the next exchange. Called once a step, from a worker's thread.
    fn stop(&self) -> bool {
        false
    }
}

/// An observer that ignores everything.
impl Observer for () {}
