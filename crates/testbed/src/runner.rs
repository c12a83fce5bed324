//! Runs one after another, with what was done before left out.

use gradwire_exchange::Rule;
use gradwire_train::run::{Observer, RunConfig, RunOptions, RunRecord, TrainError};

use crate::TestbedError;
use crate::engine::Engine;
use crate::results::compact;

/// Points of a run's trace that results keep.
pub const TRACE_POINTS: usize = 100;

/// Hears of every run, step and evaluation, and may stop it all.
pub trait Progress: Observer {
    /// Run `at` (from 0) of `of` begins.
    fn started(&self, at: usize, of: usize, run: &RunConfig);

    /// A run is done.
    fn finished(&self, run: &RunRecord);

    /// What is being done now, where that is no run.
    fn note(&self, text: &str);
}

/// What came of a list of runs.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The runs that are done, in the order of the list.
    pub runs: Vec<RunRecord>,
    /// Runs that failed, each with its reason; the others went on.
    pub failures: Vec<TestbedError>,
    /// Whether it was stopped before all runs were done.
    pub interrupted: bool,
}

impl Outcome {
    /// Adds what came of another list.
    pub fn add(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.failures.extend(other.failures);
        self.interrupted |= other.interrupted;
    }
}

/// Makes the runs of `configs` that `done` does not hold already, in order, one at a time. After each
/// one `keep` is handed everything that is done, old and new, to be written where a later call finds
/// it. New runs are made [`compact`], to [`TRACE_POINTS`].
///
/// # Errors
/// If a run in `done` is of another set-up, or `keep` fails. A run that fails is an entry of
/// [`Outcome::failures`], and the next one begins.
pub fn run_all(
    configs: &[RunConfig],
    done: &[RunRecord],
    engine: &dyn Engine,
    progress: &dyn Progress,
    mut keep: impl FnMut(&[RunRecord]) -> Result<(), TestbedError>,
) -> Result<Outcome, TestbedError> {
    let mut outcome = Outcome::default();
    let mut all = done.to_vec();
    if let Some(first) = configs.first() {
        done.iter().try_for_each(|run| same_setup(first, run))?;
    }
    for (at, config) in configs.iter().enumerate() {
        let before = done.iter().find(|run| is_of(run, config));
        if decide(engine, before.is_some())? {
            outcome.runs.extend(before.cloned());
            continue;
        }
        // What was done before stays in the outcome, also behind the run that was stopped.
        if decide(engine, outcome.interrupted || progress.stop())? {
            outcome.interrupted = true;
            continue;
        }
        progress.started(at, configs.len(), config);
        match engine.run(config, progress, &RunOptions::default()) {
            // Another process keeps the record.
            Ok(None) => {}
            Ok(Some(run)) => {
                let run = compact(&run, TRACE_POINTS);
                progress.finished(&run);
                all.push(run.clone());
                outcome.runs.push(run);
                keep(&all)?;
            }
            Err(TrainError::Stopped { .. }) => {
                outcome.interrupted = true;
            }
            Err(source) => outcome.failures.push(TestbedError::Run {
                compressor: config.compressor.to_string(),
                seed: config.seed,
                source: Box::new(source),
            }),
        }
    }
    Ok(outcome)
}

/// What the first rank says, on all.
fn decide(engine: &dyn Engine, own: bool) -> Result<bool, TestbedError> {
    engine.decide(own).map_err(|error| TestbedError::Config(error.to_string()))
}

/// Whether a finished run is the one that a configuration describes; their set-ups are the same.
fn is_of(run: &RunRecord, config: &RunConfig) -> bool {
    run.compressor == config.compressor.to_string()
        && run.seed == config.seed
        && run.steps == config.steps
}

fn clip(norm: Option<String>) -> String {
    norm.unwrap_or_else(|| "off".to_owned())
}

/// Refuses finished runs that cannot stand beside new ones, and names the first difference.
fn same_setup(config: &RunConfig, run: &RunRecord) -> Result<(), TestbedError> {
    let pairs = [
        ("model", config.model.to_string(), run.model.clone()),
        ("data checksum", config.data.checksum.clone(), run.data_checksum.clone()),
        ("exchange", config.exchange.to_string(), run.exchange.clone()),
        ("send", config.send.to_string(), run.send.clone()),
        ("split", config.split.to_string(), run.split.clone()),
        ("participation", config.participation.to_string(), run.participation.to_string()),
        ("dropout", config.dropout.to_string(), run.dropout.to_string()),
        ("workers", config.workers.to_string(), run.workers.to_string()),
        ("batch", config.batch.to_string(), run.batch.to_string()),
        ("optimizer", config.optimizer.to_string(), run.optimizer.clone()),
        ("learning rate", config.learning_rate.to_string(), run.learning_rate.clone()),
        ("crop and flip", config.augment.to_string(), run.augment.to_string()),
        (
            "clip",
            clip(config.clip.map(|norm| norm.to_string())),
            clip(run.clip.map(|norm| norm.to_string())),
        ),
        ("svrg", config.svrg.to_string(), run.svrg.to_string()),
        (
            "straggler",
            config.straggler.map(|one| one.to_string()).unwrap_or_default(),
            run.straggler.clone().unwrap_or_default(),
        ),
        ("l1", config.l1.to_string(), (run.l1 as f32).to_string()),
        (
            "rules",
            config.rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(", "),
            run.rules.join(", "),
        ),
        ("raw vectors", config.raw_vectors.to_string(), run.raw_vectors.to_string()),
        (
            "raw below",
            config.raw_below.to_string(),
            run.raw_below.unwrap_or(config.raw_below).to_string(),
        ),
        (
            "raw names",
            config.raw_names.join(" "),
            run.raw_names.as_ref().unwrap_or(&config.raw_names).join(" "),
        ),
        ("overlap", config.overlap.to_string(), run.overlap.to_string()),
        ("momentum masking", config.mask.to_string(), run.mask.to_string()),
        ("weight decay", config.weight_decay.to_string(), (run.weight_decay as f32).to_string()),
    ];
    match pairs.into_iter().find(|(_, here, there)| here != there) {
        None => Ok(()),
        Some((what, here, there)) => Err(TestbedError::Config(format!(
            "the results there were made with {what} {there}, and this would be {here}; give \
             another output folder, or the same settings to continue"
        ))),
    }
}
