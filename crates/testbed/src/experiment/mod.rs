//! An experiment: one model and data set, several compressors and seeds.

mod check;
mod defaults;
mod file;
mod runs;

use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use gradwire_train::settings::TrainingSettings;
use gradwire_train::{CompressionSchedule, RunRecord};
use serde::{Serialize, Serializer};

/// An experiment, as a TOML file or the command line describes it. A missing setting has the value
/// of [`Experiment::default`], the experiment of `gradwire compare` without flags. The settings of
/// training can be read as fields of an experiment: `experiment.workers`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Experiment {
    /// The settings of training; `steps` is used if `epochs` is not given.
    #[serde(flatten, serialize_with = "TrainingSettings::write")]
    pub settings: TrainingSettings,
    /// A data set's name (`digits` is generated) or the folder that holds its files.
    pub data: String,
    /// The compressors to compare.
    #[serde(serialize_with = "write_schedules")]
    pub compressors: Vec<CompressionSchedule>,
    /// Passes over the training set, instead of `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// One run for each compressor and seed.
    pub seeds: Vec<u64>,
    /// Evaluations during a run, including the one after the last step.
    pub evaluations: u64,
    /// Whether the first worker's gradients and residuals are diagnosed, about fifty times per run.
    pub diagnose: bool,
    /// Bandwidths of the links for modelled step times, in Mbit/s.
    pub links_mbit: Vec<f64>,
    /// Modelled latency of a message, in milliseconds.
    pub latency_ms: f64,
}

impl Default for Experiment {
    fn default() -> Self {
        let specs = [
            "none",
            "int8",
            "terngrad:clip=0",
            "onebit",
            "topk:ratio=0.05,select=sampled",
            "3lc",
            "3lc:s=1.75",
        ];
        Self {
            settings: TrainingSettings::default(),
            data: "digits".to_owned(),
            compressors: specs.map(known).to_vec(),
            epochs: None,
            seeds: vec![0],
            evaluations: 10,
            diagnose: false,
            links_mbit: vec![10.0, 100.0, 1_000.0, 10_000.0],
            latency_ms: 0.0,
        }
    }
}

impl Experiment {
    /// The same experiment after `change`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Adds the seeds of these runs to its own, in order.
    pub fn add_seeds(&mut self, runs: &[RunRecord]) {
        self.seeds.extend(runs.iter().map(|run| run.seed));
        self.seeds.sort_unstable();
        self.seeds.dedup();
    }
}

impl Deref for Experiment {
    type Target = TrainingSettings;

    fn deref(&self) -> &TrainingSettings {
        &self.settings
    }
}

impl DerefMut for Experiment {
    fn deref_mut(&mut self) -> &mut TrainingSettings {
        &mut self.settings
    }
}

/// Writes compressors as their specs.
fn write_schedules<S: Serializer>(
    schedules: &[CompressionSchedule],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(schedules.iter().map(CompressionSchedule::to_string))
}

/// Parses a valid text from this crate's source.
pub(crate) fn known<T: FromStr<Err: Display>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error: T::Err| panic!("'{text}': {error}"))
}
