//! Engines, which run ranks as threads or as processes.

use gradwire_train::{Observer, RunConfig, RunOptions, RunRecord, TrainError, marked, run};

use crate::TestbedError;

/// Executes runs, with ranks as threads or as processes.
pub trait Engine: Sync {
    /// Executes one run. Returns its record with its [marks](gradwire_train::marks), or `None` in a
    /// process that does not keep it.
    ///
    /// # Errors
    /// The errors of the run.
    fn run(
        &self,
        config: &RunConfig,
        observer: &dyn Observer,
        options: &RunOptions,
    ) -> Result<Option<RunRecord>, TrainError>;

    /// Whether this process keeps the records of runs, and writes files.
    fn keeps_records(&self) -> bool {
        true
    }

    /// Returns the decision of the first rank on every rank.
    ///
    /// # Errors
    /// If another rank is gone.
    fn decide(&self, own: bool) -> Result<bool, TrainError> {
        Ok(own)
    }

    /// Returns on every rank whether `own` is true on any of them.
    ///
    /// # Errors
    /// If another rank is gone.
    fn any(&self, own: bool) -> Result<bool, TrainError> {
        Ok(own)
    }
}

/// Returns the decision of the first rank on every rank.
pub(crate) fn decide(engine: &dyn Engine, own: bool) -> Result<bool, TestbedError> {
    engine.decide(own).map_err(|error| TestbedError::Config(error.to_string()))
}

/// Returns on every rank whether `own` is true on any of them.
pub(crate) fn any(engine: &dyn Engine, own: bool) -> Result<bool, TestbedError> {
    engine.any(own).map_err(|error| TestbedError::Config(error.to_string()))
}

/// Workers as threads of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Threads;

impl Engine for Threads {
    fn run(
        &self,
        config: &RunConfig,
        observer: &dyn Observer,
        options: &RunOptions,
    ) -> Result<Option<RunRecord>, TrainError> {
        run(config, observer, options).map(|record| Some(marked(record, config)))
    }
}
