//! The progress of several runs.

use gradwire_train::{Observer, RunConfig, RunRecord};

/// Watches runs, their steps and evaluations, and may stop all of them.
pub trait Progress: Observer {
    /// Run `at` (from 0) of `of` begins.
    fn started(&self, at: usize, of: usize, run: &RunConfig);

    /// A run is done.
    fn finished(&self, run: &RunRecord);

    /// Shows the current activity if it is not a run.
    fn note(&self, text: &str);
}
