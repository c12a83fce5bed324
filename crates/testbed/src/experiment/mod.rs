//! An experiment: one model and data set, several compressors and seeds.

mod check;
mod defaults;
mod exchange;
mod file;
mod runs;

use std::fmt::Display;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use gradwire_exchange::{Exchange, Link, ParseExchangeError};
use gradwire_train::settings::{Setting, TrainingSettings};
use gradwire_train::{CompressionSchedule, RunRecord};
use serde::{Serialize, Serializer};

pub use exchange::ExchangeChoice;

/// An experiment, as a TOML file or the command line describes it. A missing setting has the value
/// of [`Experiment::default`], the experiment of `gradwire compare` without flags. The settings of
/// training can be read as fields of an experiment: `experiment.workers`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Experiment {
    /// The settings of training, of which `exchange` is not used; `steps` is used if `epochs` is
    /// not given.
    #[serde(flatten, serialize_with = "TrainingSettings::write")]
    settings: TrainingSettings,
    /// The exchange of the runs.
    #[serde(skip)]
    pub exchange: ExchangeChoice,
    /// A data set's name (`digits` is generated) or the folder that holds its files.
    pub data: String,
    /// The compressors to compare.
    #[serde(serialize_with = "write_texts")]
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
    /// The links for modelled step times.
    #[serde(serialize_with = "write_texts")]
    pub links: Vec<Link>,
}

impl Default for Experiment {
    fn default() -> Self {
        let specs = [
            "none",
            "eden",
            "int8",
            "terngrad:clip=0",
            "onebit",
            "topk:ratio=0.05,select=sampled",
            "3lc",
            "3lc:s=1.75",
        ];
        Self {
            settings: TrainingSettings::default(),
            exchange: ExchangeChoice::Auto,
            data: "digits".to_owned(),
            compressors: specs.map(known).to_vec(),
            epochs: None,
            seeds: vec![0],
            evaluations: 10,
            diagnose: false,
            links: [10.0, 100.0, 1_000.0, 10_000.0].map(Link::mbit).to_vec(),
        }
    }
}

impl Experiment {
    /// The same experiment after `change`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The settings of a run of `none`. Runs of other compressors differ only in their exchange, if
    /// it is [`Auto`](ExchangeChoice::Auto).
    pub fn settings(&self) -> TrainingSettings {
        self.settings_of(&CompressionSchedule::from(gradwire::Spec::none()))
    }

    /// The settings of the runs of a compressor.
    pub(super) fn settings_of(&self, compressor: &CompressionSchedule) -> TrainingSettings {
        TrainingSettings { exchange: self.exchange_of(compressor), ..self.settings.clone() }
    }

    /// The exchange of the runs of a compressor.
    pub fn exchange_of(&self, compressor: &CompressionSchedule) -> Exchange {
        self.exchange.of(compressor, &self.settings)
    }

    /// Gives a setting the value that its flag has on the command line, as
    /// [`Setting::set`] does; `exchange` may be `auto`.
    ///
    /// # Errors
    /// The reason, for a text that is not a value of this setting.
    pub fn set(&mut self, setting: &Setting, texts: &[&str]) -> Result<(), String> {
        if setting.name != ExchangeChoice::KEY {
            return setting.set(&mut self.settings, texts);
        }
        let text = texts.last().ok_or("a value is missing")?;
        self.exchange = text.parse().map_err(|error: ParseExchangeError| error.to_string())?;
        Ok(())
    }

    /// As [`suiting`](Self::suiting), for a model of gradwire's own, which must be valid.
    pub(crate) fn suiting_own(self, model: &str) -> Self {
        self.suiting(known(model)).unwrap_or_else(|error| panic!("'{model}': {error}"))
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

/// Writes values as their texts.
fn write_texts<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(T::to_string))
}

/// Parses a valid text from this crate's source.
pub(crate) fn known<T: FromStr<Err: Display>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error: T::Err| panic!("'{text}': {error}"))
}
