//! The records of a result file: finished runs, and runs that diverged.

use gradwire::Spec;
use gradwire_train::settings::TrainingSettings;
use gradwire_train::{CompressionSchedule, RunConfig, RunRecord, TrainError, VERSION};
use serde::{Deserialize, Serialize};

use crate::TestbedError;

/// The records of a result file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// The finished runs.
    pub runs: Vec<RunRecord>,
    /// The runs that diverged.
    pub diverged: Vec<DivergedRun>,
}

impl Records {
    /// The records whose settings are `chosen`, and the others.
    pub(crate) fn partition(self, chosen: impl Fn(&TrainingSettings) -> bool) -> (Self, Self) {
        let (runs, other_runs) = self.runs.into_iter().partition(|run| chosen(&run.settings));
        let (diverged, other_diverged) =
            self.diverged.into_iter().partition(|run| chosen(&run.settings));
        let others = Self { runs: other_runs, diverged: other_diverged };
        (Self { runs, diverged }, others)
    }

    /// These records and the others.
    pub(crate) fn joined(&self, others: &Self) -> Self {
        Self {
            runs: [&*self.runs, &*others.runs].concat(),
            diverged: [&*self.diverged, &*others.diverged].concat(),
        }
    }
}

impl From<Vec<RunRecord>> for Records {
    fn from(runs: Vec<RunRecord>) -> Self {
        Self { runs, diverged: Vec::new() }
    }
}

/// A run that diverged. Its record keeps a comparison from showing only the seeds that did not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DivergedRun {
    /// [`VERSION`] of the gradwire that made the run.
    pub version: String,
    /// The data set.
    pub data: String,
    /// SHA-256 of the data set.
    pub data_checksum: String,
    /// The compressor's spec.
    pub compressor: String,
    /// The seed.
    pub seed: u64,
    /// The settings.
    #[serde(flatten, serialize_with = "TrainingSettings::write")]
    pub settings: TrainingSettings,
    /// The value that is not finite, with its place and step.
    pub diverged: String,
}

impl DivergedRun {
    /// The record of a run that ended with this error; `None` if it did not diverge.
    pub fn of(config: &RunConfig, error: &TrainError) -> Option<Self> {
        let TrainError::Diverged { what, .. } = error else { return None };
        Some(Self {
            version: VERSION.to_owned(),
            data: config.data.name.clone(),
            data_checksum: config.data.checksum.clone(),
            compressor: config.compressor.to_string(),
            seed: config.seed,
            settings: config.resolved(),
            diverged: what.clone(),
        })
    }

    /// Whether it is the run of a configuration; both have the same set-up.
    pub(crate) fn is_of(&self, config: &RunConfig) -> bool {
        self.compressor == config.compressor.to_string()
            && self.seed == config.seed
            && self.settings.steps == config.steps
    }

    /// Why it failed.
    pub fn error(&self) -> TestbedError {
        let Self { compressor, seed, settings, diverged, .. } = self;
        let schedule =
            compressor.parse().unwrap_or_else(|_| CompressionSchedule::from(Spec::none()));
        let source = Box::new(TrainError::diverged(diverged, settings, &schedule));
        TestbedError::Run { compressor: compressor.clone(), seed: *seed, source }
    }
}
