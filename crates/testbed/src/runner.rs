//! Executes runs one after another, and skips finished runs.

use std::path::Path;

use gradwire_train::settings::{SETTINGS, Setting, TrainingSettings};
use gradwire_train::{RunConfig, RunRecord, TrainError};

use crate::engine::{Engine, any, decide};
use crate::results::compact;
use crate::{DivergedRun, Records, TestbedError, unfinished};

pub use crate::progress::Progress;

/// The number of trace points of a run in results.
pub const TRACE_POINTS: usize = 100;

/// The outcome of a list of runs.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The finished runs, in the order of the list, and perhaps others to be shown with them.
    pub runs: Vec<RunRecord>,
    /// The number of finished runs of the list.
    pub done: usize,
    /// Failed runs, each with its reason; the others went on.
    pub failures: Vec<TestbedError>,
    /// The runs of the list that diverged, and perhaps others to be shown with them.
    pub diverged: Vec<DivergedRun>,
    /// Whether it was stopped before all runs were done.
    pub interrupted: bool,
    /// Whether a file could not be written, so no other run begins; the last failure names the
    /// file.
    pub ended: bool,
}

impl Outcome {
    /// Why runs failed, a line for each.
    pub fn failed(&self) -> Vec<String> {
        self.failures.iter().map(TestbedError::to_string).collect()
    }

    /// Notes why a run failed.
    fn fail(&mut self, config: &RunConfig, source: TrainError) {
        self.failures.push(TestbedError::Run {
            compressor: config.compressor.to_string(),
            seed: config.seed,
            source: Box::new(source),
        });
    }

    /// Notes why no other run begins.
    fn end(&mut self, error: TestbedError) {
        self.failures.push(error);
        self.ended = true;
    }

    /// Adds the outcome of another list.
    pub fn add(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.done += other.done;
        self.failures.extend(other.failures);
        self.diverged.extend(other.diverged);
        self.interrupted |= other.interrupted;
        self.ended |= other.ended;
    }
}

/// Executes the runs of `configs` that are not in `done`, in order, one at a time. After each run,
/// `keep` receives all finished runs, old and new, to store them for a later call. New runs are
/// [compacted](compact) to [`TRACE_POINTS`]. A run that is stopped or killed leaves a
/// [checkpoint](crate::unfinished) in the folder `unfinished`, and a later call resumes it. A run
/// in `done` without the diagnoses that its configuration asks for is repeated, and replaced when
/// it ends. A run that has diverged is a record, too, and fails again without being repeated.
///
/// # Errors
/// If a run in `done` has other settings. A failed run is an entry of [`Outcome::failures`], and
/// the next run begins. If `keep` fails or the folder cannot be written, that is the last entry,
/// and the outcome has [ended](Outcome::ended).
pub fn run_all(
    configs: &[RunConfig],
    done: &Records,
    engine: &dyn Engine,
    progress: &dyn Progress,
    unfinished: &Path,
    mut keep: impl FnMut(&Records) -> Result<(), TestbedError>,
) -> Result<Outcome, TestbedError> {
    let mut outcome = Outcome::default();
    let mut all = done.clone();
    done.runs.iter().try_for_each(|run| same_setup(configs, &Setup::of(run)))?;
    done.diverged.iter().try_for_each(|run| same_setup(configs, &Setup::of_diverged(run)))?;
    for (at, config) in configs.iter().enumerate() {
        let before = done.runs.iter().find(|run| is_of(run, config) && has_diagnoses(run, config));
        if decide(engine, before.is_some())? {
            outcome.runs.extend(before.cloned());
            outcome.done += 1;
            continue;
        }
        let diverged = done.diverged.iter().find(|run| run.is_of(config));
        if decide(engine, diverged.is_some())? {
            outcome.failures.extend(diverged.map(DivergedRun::error));
            outcome.diverged.extend(diverged.cloned());
            continue;
        }
        // After a stop, runs finished earlier are still added to the outcome.
        if any(engine, outcome.interrupted || progress.stop())? {
            outcome.interrupted = true;
            continue;
        }
        progress.started(at, configs.len(), config);
        let run = match unfinished::run(config, engine, progress, unfinished) {
            Ok(run) => run,
            Err(error) => {
                outcome.end(error);
                break;
            }
        };
        match run {
            // Another process has the record.
            Ok(None) => {
                outcome.done += 1;
                if let Err(error) = all_kept(engine, Ok(())) {
                    outcome.end(error);
                    break;
                }
            }
            Ok(Some(run)) => {
                let run = compact(&run, TRACE_POINTS);
                progress.finished(&run);
                all.runs.retain(|before| !is_of(before, config));
                all.runs.push(run.clone());
                outcome.runs.push(run);
                outcome.done += 1;
                let kept = keep(&all).and_then(|()| unfinished::forget(unfinished, config));
                // Finished runs are shown, even if they cannot be stored.
                if let Err(error) = all_kept(engine, kept) {
                    outcome.end(error);
                    break;
                }
            }
            Err(TrainError::Stopped { .. }) => {
                outcome.interrupted = true;
            }
            Err(source) => {
                let diverged = DivergedRun::of(config, &source);
                all.diverged.extend(diverged.clone());
                if diverged.is_some() && engine.keeps_records() {
                    let kept = keep(&all).and_then(|()| unfinished::forget(unfinished, config));
                    outcome.failures.extend(kept.err());
                }
                outcome.fail(config, source);
                outcome.diverged.extend(diverged);
            }
        }
    }
    Ok(outcome)
}

/// Ends the runs on every rank if the rank that keeps the records failed: the others would wait for
/// it in the next run.
fn all_kept(engine: &dyn Engine, own: Result<(), TestbedError>) -> Result<(), TestbedError> {
    let failed = any(engine, own.is_err());
    own?;
    match failed? {
        false => Ok(()),
        true => Err(TestbedError::Config(
            "the first rank could not store the results; see the message of that rank".to_owned(),
        )),
    }
}

/// The finished runs that match none of these configurations; all have the same set-up.
pub fn others<'a>(
    configs: &'a [RunConfig],
    done: &'a [RunRecord],
) -> impl Iterator<Item = &'a RunRecord> {
    done.iter().filter(|run| !configs.iter().any(|config| is_of(run, config)))
}

/// The runs that diverged and match none of these configurations; all have the same set-up.
pub fn others_diverged<'a>(
    configs: &'a [RunConfig],
    diverged: &'a [DivergedRun],
) -> impl Iterator<Item = &'a DivergedRun> {
    diverged.iter().filter(|run| !configs.iter().any(|config| run.is_of(config)))
}

/// Whether a finished run matches a configuration; both have the same set-up.
fn is_of(run: &RunRecord, config: &RunConfig) -> bool {
    run.compressor == config.compressor.to_string()
        && run.seed == config.seed
        && run.steps == config.steps
}

/// Whether a finished run has the diagnoses that a configuration asks for, if it asks for any.
fn has_diagnoses(run: &RunRecord, config: &RunConfig) -> bool {
    config.diagnose_every == 0 || !run.diagnoses.is_empty()
}

/// Settings that may differ between the runs of one result file.
const MAY_DIFFER: [&str; 3] = ["steps", "evaluate_at_most", "deadline_s"];

/// The settings of a finished run that differ from `settings`: the setting, its text in `settings`,
/// and its text in the run. Leaves out settings that may differ within a result file.
pub(crate) fn differences<'a>(
    settings: &'a TrainingSettings,
    run: &'a TrainingSettings,
) -> impl Iterator<Item = (&'static Setting, String, String)> {
    let compared = SETTINGS.iter().filter(|setting| !MAY_DIFFER.contains(&setting.name));
    let both = compared.map(|one| (one, one.text(settings), one.text(run)));
    both.filter(|(_, here, there)| here != there)
}

/// Settings that may depend on the compressor.
const BY_COMPRESSOR: [&str; 2] = ["exchange", "rules"];

/// The set-up of a record.
struct Setup<'a> {
    compressor: &'a str,
    checksum: &'a str,
    settings: &'a TrainingSettings,
}

impl<'a> Setup<'a> {
    fn of(run: &'a RunRecord) -> Self {
        let RunRecord { compressor, data_checksum, settings, .. } = run;
        Self { compressor, checksum: data_checksum, settings }
    }

    fn of_diverged(run: &'a DivergedRun) -> Self {
        let DivergedRun { compressor, data_checksum, settings, .. } = run;
        Self { compressor, checksum: data_checksum, settings }
    }
}

/// Refuses a record whose settings differ from the new runs, and names the first difference.
/// Settings that depend on the compressor are compared only with runs of the same compressor.
fn same_setup(configs: &[RunConfig], setup: &Setup<'_>) -> Result<(), TestbedError> {
    let Some(first) = configs.first() else { return Ok(()) };
    let same = configs.iter().find(|config| config.compressor.to_string() == setup.compressor);
    let settings = same.unwrap_or(first).resolved();
    let data = ("data checksum".to_owned(), first.data.checksum.clone(), setup.checksum.to_owned());
    let same_data = data.1 == data.2;
    let settings = differences(&settings, setup.settings)
        .filter(|(setting, ..)| same.is_some() || !BY_COMPRESSOR.contains(&setting.name))
        .map(|(one, here, there)| (one.title(), here, there));
    match (!same_data).then_some(data).into_iter().chain(settings).next() {
        None => Ok(()),
        Some((what, here, there)) => Err(TestbedError::Config(format!(
            "the results there were made with {what} {there}, but this run has {here}; give \
             another output folder, or the same settings to continue"
        ))),
    }
}
