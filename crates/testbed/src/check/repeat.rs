//! Repeats runs of a result file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gradwire_models::data::Dataset;
use gradwire_train::settings::TrainingSettings;
use gradwire_train::{
    CompressionSchedule, Evaluation, Observer, RunConfig, RunOptions, RunRecord, StepRecord,
    TrainError, changed_parts, marks,
};

use super::{Committed, Figures, Verdict};
use crate::TestbedError;
use crate::engine::Engine;
use crate::experiment::Experiment;
use crate::runner::Progress;

/// A run that was repeated, or not.
#[derive(Debug)]
pub struct Checked {
    /// The run.
    pub committed: Committed,
    /// Its figures.
    pub before: Figures,
    /// The figures of the repetition; `None` without one.
    pub now: Option<Figures>,
    /// How they compare.
    pub verdict: Verdict,
}

/// Loaded data sets by name, or why one cannot be loaded.
type Loaded = BTreeMap<String, Result<Arc<Dataset>, String>>;

/// Repeats runs with the settings of their records, on the data set of the same name or on `data`,
/// and compares them. With `steps`, repeats only that many steps and compares the digest.
///
/// Settings that change no bit, such as delays of a worker, are left out. A run that cannot be
/// repeated, or whose record has no digest after `steps` steps, is [not
/// checked](Verdict::NotChecked).
///
/// # Errors
/// `Stopped` if the progress asks to stop. `Config` if no record has a digest after `steps` steps.
pub fn check(
    runs: Vec<Committed>,
    data: Option<&str>,
    steps: Option<u64>,
    engine: &dyn Engine,
    progress: &dyn Progress,
) -> Result<Vec<Checked>, TestbedError> {
    if let Some(error) = none_recorded(&runs, steps) {
        return Err(error);
    }
    let count = runs.len();
    let (mut loaded, mut all) = (Loaded::new(), Vec::new());
    for (at, committed) in runs.into_iter().enumerate() {
        let before = recorded(&committed, steps);
        let repeated = match &before {
            Ok(_) => configuration(&committed.record, data, &mut loaded),
            Err(reason) => Err(reason.clone()),
        };
        let repeated = repeated.and_then(|config| {
            progress.started(at, count, &config);
            repeat(&config, steps, engine, progress)
        });
        let before = before.unwrap_or_else(|_| at_end(&committed.record));
        let checked = match repeated {
            Err(reason) => {
                Checked { committed, before, now: None, verdict: Verdict::NotChecked(reason) }
            }
            Ok(_) if progress.stop() => {
                return Err(TestbedError::Stopped(format!("{at} of {count} runs are checked")));
            }
            Ok(Err(error)) => {
                let verdict = Verdict::Differs(format!("the repetition failed: {error}"));
                Checked { committed, before, now: None, verdict }
            }
            Ok(Ok(now)) => {
                let why = why(&committed.record);
                let verdict = Verdict::of(committed.record.metric, &before, &now, why);
                Checked { committed, before, now: Some(now), verdict }
            }
        };
        all.push(checked);
    }
    Ok(all)
}

/// The error if no run has a digest after `steps` steps.
fn none_recorded(runs: &[Committed], steps: Option<u64>) -> Option<TestbedError> {
    let first = runs.first()?;
    let reason = recorded(first, steps).err()?;
    let no_run = runs.iter().all(|run| recorded(run, steps).is_err());
    no_run.then(|| TestbedError::Config(format!("{}: {reason}", first.title())))
}

/// The recorded figures, at the end of the run or after its first steps, or why there are none.
fn recorded(run: &Committed, steps: Option<u64>) -> Result<Figures, String> {
    let record = &run.record;
    let Some(steps) = steps else { return Ok(at_end(record)) };
    if let Some(digest) = record.digest_at.get(&steps) {
        return Ok(Figures { digest: digest.clone(), quality: None, bytes: None });
    }
    let known: Vec<String> = record.digest_at.keys().map(u64::to_string).collect();
    let remedy = match known.as_slice() {
        [] => "it only has one at its end: leave out --steps".to_owned(),
        _ => format!("it has digests after {}", known.join(", ")),
    };
    Err(format!("the record has no digest after {steps} steps; {remedy}"))
}

fn at_end(record: &RunRecord) -> Figures {
    // Records are written with twelve significant digits.
    let record = crate::results::compact(record, 1);
    let bytes = record.bytes_up + record.bytes_down;
    Figures { digest: record.digest, quality: Some(record.quality), bytes: Some(bytes) }
}

/// The configuration of a recorded run, or why it cannot be repeated.
fn configuration(
    record: &RunRecord,
    data: Option<&str>,
    loaded: &mut Loaded,
) -> Result<RunConfig, String> {
    if !record.changes.is_empty() {
        return Err("the number of workers changed during the run".to_owned());
    }
    let compressor: CompressionSchedule = record
        .compressor
        .parse()
        .map_err(|error| format!("the compressor '{}' is not known: {error}", record.compressor))?;
    let name = data.unwrap_or(&record.data);
    let known = loaded.entry(name.to_owned()).or_insert_with(|| {
        let experiment = Experiment::default().with(|e| e.data = name.to_owned());
        experiment.load_data().map_err(|error| error.to_string())
    });
    let data = known.clone()?;
    if data.checksum != record.data_checksum {
        return Err(format!(
            "the checksum of the data set '{name}' differs from the checksum in the record"
        ));
    }
    let settings =
        TrainingSettings { straggler: None, min_workers: None, ..record.settings.clone() };
    let config = RunConfig { seed: record.seed, ..RunConfig::new(settings, data, compressor) };
    if !config.resumes_exactly() {
        return Err(format!(
            "with '{}' workers do not wait for each other, so repetitions have other bits",
            config.exchange
        ));
    }
    Ok(config)
}

/// Executes a run, or its first steps.
fn repeat(
    config: &RunConfig,
    steps: Option<u64>,
    engine: &dyn Engine,
    progress: &dyn Progress,
) -> Result<Result<Figures, TrainError>, String> {
    let watching = Watching { progress, steps, digest: Mutex::default() };
    let outcome = engine.run(config, &watching, &RunOptions::default());
    let digest = watching.digest.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (digest, outcome) {
        (Some(digest), _) => Ok(Ok(Figures { digest, quality: None, bytes: None })),
        (None, Ok(Some(record))) => {
            progress.finished(&record);
            Ok(Ok(at_end(&record)))
        }
        (None, Ok(None)) => Err("another process keeps the record".to_owned()),
        (None, Err(error)) => Ok(Err(error)),
    }
}

/// Why the bits of a repetition may differ: the parts of gradwire whose marks differ.
fn why(record: &RunRecord) -> String {
    let Ok(compressor) = record.compressor.parse::<CompressionSchedule>() else {
        return "its compressor is not known".to_owned();
    };
    if record.numerics.is_empty() {
        return format!("no marks were recorded; made by {}", record.version);
    }
    let now = marks(&record.settings, &compressor);
    match changed_parts(&record.numerics, &now).as_slice() {
        [] => format!("all marks are equal; made by {} on {}", record.version, record.processor),
        parts => format!("other {}", parts.join(", ")),
    }
}

/// Watches a run, and stops it when the digest after some steps is known.
struct Watching<'a> {
    progress: &'a dyn Progress,
    steps: Option<u64>,
    digest: Mutex<Option<String>>,
}

impl Watching<'_> {
    fn has_digest(&self) -> bool {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Observer for Watching<'_> {
    fn step(&self, record: &StepRecord, total: u64) {
        self.progress.step(record, self.steps.unwrap_or(total));
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        self.progress.evaluated(evaluation);
    }

    fn digested(&self, steps: u64, digest: &str) {
        if self.steps == Some(steps) {
            let mut found = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
            *found = Some(digest.to_owned());
        }
    }

    fn warned(&self, warning: &str) {
        self.progress.warned(warning);
    }

    fn stop(&self) -> bool {
        self.progress.stop() || self.has_digest()
    }
}
