//! Watching a run.

use crate::record::{Evaluation, StepRecord};

/// Watches a run. All calls but [`stop`](Self::stop) come from the thread that called [`run`](crate::run()).
pub trait Observer: Send + Sync {
    /// All workers have completed a step; the run has `total` steps.
    fn step(&self, record: &StepRecord, total: u64) {
        let _ = (record, total);
    }

    /// The global model has been evaluated.
    fn evaluated(&self, evaluation: &Evaluation) {
        let _ = evaluation;
    }

    /// Something looks wrong, though the run continues: a configuration that contradicts itself, a residual
    /// that grows without bound.
    fn warned(&self, warning: &str) {
        let _ = warning;
    }

    /// Whether to end the run at the next exchange. Asked once a step, from a worker's thread.
    fn stop(&self) -> bool {
        false
    }
}

/// An observer that ignores everything.
impl Observer for () {}
