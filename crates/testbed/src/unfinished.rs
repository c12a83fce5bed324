//! Runs that are stopped or killed before their end, and resume from a checkpoint beside the
//! results.
//!
//! The name of a checkpoint contains the [fingerprint](RunConfig::fingerprint) of its run, so no
//! other run resumes from it. Every three minutes a run stops, writes a checkpoint, and resumes at
//! once, so a killed run can continue. That changes neither the result nor the recorded times of
//! steps. Two kinds of runs have a checkpoint only if the user stops them: runs whose workers do
//! not wait for each other, and runs with `min_workers`.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradwire_train::{
    Evaluation, Observer, RunConfig, RunOptions, RunRecord, Save, StepRecord, TrainError,
    can_resume,
};

use crate::TestbedError;
use crate::engine::{Engine, any, decide};
use crate::files::check_writable;
use crate::progress::Progress;

/// The time between two checkpoints.
const INTERVAL: Duration = Duration::from_secs(180);

/// The prefix of names of checkpoints.
const NAME: &str = "unfinished-";

/// The checkpoint of a run in a folder.
fn path(folder: &Path, config: &RunConfig) -> PathBuf {
    folder.join(format!("{NAME}{}.state", config.fingerprint()))
}

/// Removes the checkpoint of a run, if there is one.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn forget(folder: &Path, config: &RunConfig) -> Result<(), TestbedError> {
    let path = path(folder, config);
    // A file that a killed process did not rename.
    let new = path.with_extension("state.new");
    [path, new].iter().try_for_each(|path| remove(path))
}

/// Removes all checkpoints of unfinished runs from a folder, and returns them.
///
/// # Errors
/// The errors of the file system.
pub fn forget_all(folder: &Path) -> Result<Vec<PathBuf>, TestbedError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME))
    };
    let mut all: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(ours).collect();
    all.sort_unstable();
    all.iter().try_for_each(|path| remove(path))?;
    Ok(all)
}

/// Refuses a folder with unfinished runs if none of them is among these: they would never be
/// continued.
///
/// # Errors
/// `Config`, with the remedy.
pub fn refuse_others(folder: &Path, runs: &[RunConfig]) -> Result<(), TestbedError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let mut unfinished =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_checkpoint(path)).peekable();
    let own: HashSet<PathBuf> = runs.iter().map(|run| path(folder, run)).collect();
    if unfinished.peek().is_none() || unfinished.any(|path| own.contains(&path)) {
        return Ok(());
    }
    Err(TestbedError::Config(format!(
        "the unfinished run in '{}' has other settings; give the same settings to continue it, or another folder",
        folder.display()
    )))
}

/// Whether a file is the checkpoint of a run.
fn is_checkpoint(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(NAME) && name.ends_with(".state"))
}

fn remove(path: &Path) -> Result<(), TestbedError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TestbedError::write(path)(error)),
        _ => Ok(()),
    }
}

/// Executes a run, from its checkpoint in a folder if there is one, and writes checkpoints there.
///
/// # Errors
/// The inner error is the run's. The outer error is from the folder or the agreement between ranks.
pub(crate) fn run(
    config: &RunConfig,
    engine: &dyn Engine,
    progress: &dyn Progress,
    folder: &Path,
) -> Result<Result<Option<RunRecord>, TrainError>, TestbedError> {
    run_with(config, engine, progress, folder, INTERVAL)
}

/// [`run`], with another time between checkpoints.
fn run_with(
    config: &RunConfig,
    engine: &dyn Engine,
    progress: &dyn Progress,
    folder: &Path,
    interval: Duration,
) -> Result<Result<Option<RunRecord>, TrainError>, TestbedError> {
    let (path, keeps) = (path(folder, config), engine.keeps_records());
    let writable = if keeps { check_writable(&path) } else { Ok(()) };
    // The first rank decides for all, even if it cannot write.
    let mut resumes = decide(engine, keeps && can_resume(&path, config))?;
    writable?;
    if keeps && !resumes {
        if path.exists() {
            progress.warned(&format!(
                "the checkpoint '{}' is damaged or has another version, so its run starts again",
                path.display()
            ));
        }
        forget(folder, config)?;
    }
    let pauses = config.resumes_exactly() && config.min_workers.is_none();
    let warned = Mutex::default();
    loop {
        let save = Some(Save { path: path.clone(), every: 0, at_end: false, keep: 1 });
        let resume = resumes.then(|| path.clone());
        let options = RunOptions { save, resume, ..RunOptions::default() };
        let end = pauses.then(|| Instant::now() + interval);
        match engine.run(config, &Turn { progress, end, warned: &warned }, &options) {
            Err(TrainError::Stopped { .. }) if pauses && !any(engine, progress.stop())? => {
                resumes = true;
            }
            outcome => return Ok(outcome),
        }
    }
}

/// Watches a run between two of its checkpoints.
struct Turn<'a> {
    progress: &'a dyn Progress,
    end: Option<Instant>,
    /// The warnings shown so far: a run that resumes gives them again.
    warned: &'a Mutex<HashSet<String>>,
}

impl Observer for Turn<'_> {
    fn step(&self, record: &StepRecord, total: u64) {
        self.progress.step(record, total);
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        self.progress.evaluated(evaluation);
    }

    fn digested(&self, steps: u64, digest: &str) {
        self.progress.digested(steps, digest);
    }

    fn warned(&self, warning: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(warning.to_owned()) {
            self.progress.warned(warning);
        }
    }

    fn unsaved(&self, error: &TrainError) {
        self.progress.unsaved(error);
    }

    fn leads(&self) {
        self.progress.leads();
    }

    fn workers(&self) -> Option<usize> {
        self.progress.workers()
    }

    fn stop(&self) -> bool {
        self.progress.stop() || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use gradwire_models::data;

    use super::*;
    use crate::Records;
    use crate::engine::Threads;
    use crate::experiment::{Experiment, known};
    use crate::runner::{Outcome, run_all};

    /// Notes the first step it sees, and stops runs at the n-th query, one per step; each query
    /// takes a moment.
    #[derive(Default)]
    struct Watching {
        stops_at: Option<u64>,
        asked: AtomicU64,
        first: Mutex<Option<u64>>,
        warnings: Mutex<String>,
    }

    impl Observer for Watching {
        fn step(&self, record: &StepRecord, _: u64) {
            self.first.lock().unwrap().get_or_insert(record.step);
        }

        fn warned(&self, warning: &str) {
            self.warnings.lock().unwrap().push_str(warning);
        }

        fn stop(&self) -> bool {
            std::thread::sleep(Duration::from_millis(1));
            let asked = self.asked.fetch_add(1, Ordering::Relaxed);
            self.stops_at.is_some_and(|at| asked >= at)
        }
    }

    impl Progress for Watching {
        fn started(&self, _: usize, _: usize, _: &RunConfig) {}

        fn finished(&self, _: &RunRecord) {}

        fn note(&self, _: &str) {}
    }

    /// Counts how often a run begins or goes on.
    #[derive(Default)]
    struct Counting(AtomicU64);

    impl Engine for Counting {
        fn run(
            &self,
            config: &RunConfig,
            observer: &dyn Observer,
            options: &RunOptions,
        ) -> Result<Option<RunRecord>, TrainError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Threads.run(config, observer, options)
        }
    }

    fn config(compressor: &str, change: impl FnOnce(&mut Experiment)) -> RunConfig {
        let experiment = Experiment::default().with(|e| {
            e.compressors = vec![known(compressor)];
            e.model = known("mlp");
            (e.workers, e.batch, e.steps) = (2, 4, 40);
            change(e);
        });
        experiment.runs(&Arc::new(data::embedded_sized(0, 100, 10))).remove(0)
    }

    /// The outcome of a run, stopped after about this number of steps, and its first step.
    fn outcome(config: &RunConfig, stops_at: Option<u64>, folder: &Path) -> (Outcome, u64) {
        let progress = Watching { stops_at, ..Watching::default() };
        let configs = std::slice::from_ref(config);
        let outcome =
            run_all(configs, &Records::default(), &Threads, &progress, folder, |_| Ok(()));
        let first = progress.first.lock().unwrap().unwrap_or_default();
        (outcome.unwrap(), first)
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn same_run(one: &RunRecord, other: &RunRecord) {
        assert_eq!((&one.digest, one.bytes_up), (&other.digest, other.bytes_up));
        assert_eq!(one.evaluations, other.evaluations);
        let steps = |run: &RunRecord| -> Vec<(u64, f64)> {
            run.trace.iter().map(|step| (step.step, step.loss)).collect()
        };
        assert_eq!(steps(one), steps(other));
    }

    #[test]
    fn a_stopped_run_goes_on_with_the_same_bits_and_leaves_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, config) = (&folder.path().join("new"), config("3lc", |_| {}));
        let (whole, _) = outcome(&config, None, folder);
        assert!(files(folder).is_empty());
        let (stopped, _) = outcome(&config, Some(20), folder);
        assert!(stopped.interrupted && stopped.runs.is_empty() && files(folder).len() == 1);
        let (resumed, first) = outcome(&config, None, folder);
        assert!(first > 10 && files(folder).is_empty(), "from step {first}");
        same_run(&whole.runs[0], &resumed.runs[0]);
    }

    /// The files of a killed process.
    #[test]
    fn a_run_writes_checkpoints_on_its_way_and_they_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, config) = (folder.path(), config("3lc", |_| {}));
        let whole = Threads.run(&config, &(), &RunOptions::default()).unwrap().unwrap();
        let (progress, engine) = (Watching::default(), Counting::default());
        let interval = Duration::from_millis(10);
        let run = run_with(&config, &engine, &progress, folder, interval).unwrap();
        // Forty steps take forty milliseconds at least.
        assert!(engine.0.into_inner() > 1);
        same_run(&whole, &run.unwrap().unwrap());
        assert!(can_resume(&path(folder, &config), &config));
    }

    #[test]
    fn only_runs_whose_workers_wait_for_each_other_are_stopped() {
        let turns = |change: fn(&mut Experiment)| {
            let folder = tempfile::tempdir().unwrap();
            let (config, engine) = (config("3lc", change), Counting::default());
            let progress = Watching::default();
            let run = run_with(&config, &engine, &progress, folder.path(), Duration::ZERO);
            run.unwrap().unwrap();
            engine.0.into_inner()
        };
        for exchange in ["server:backup=1", "server:mode=async", "server:stale=2"] {
            assert!(!config("3lc", |e| e.exchange = known(exchange)).resumes_exactly());
        }
        assert_eq!(turns(|e| e.exchange = known("server:mode=async")), 1);
        assert_eq!(turns(|e| e.min_workers = Some(1)), 1);
    }

    /// One of several ranks; another is asked to stop.
    struct WithAnother;

    impl Engine for WithAnother {
        fn run(
            &self,
            config: &RunConfig,
            observer: &dyn Observer,
            options: &RunOptions,
        ) -> Result<Option<RunRecord>, TrainError> {
            Threads.run(config, observer, options)
        }

        fn any(&self, _: bool) -> Result<bool, TrainError> {
            Ok(true)
        }
    }

    #[test]
    fn runs_stop_if_another_rank_is_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, config, progress) =
            (folder.path(), config("3lc", |_| {}), Watching::default());
        let run = run_with(&config, &WithAnother, &progress, folder, Duration::ZERO).unwrap();
        assert!(matches!(run, Err(TrainError::Stopped { .. })), "{run:?}");
        // No run begins.
        let taken = progress.asked.load(Ordering::Relaxed);
        let outcome =
            run_all(&[config], &Records::default(), &WithAnother, &progress, folder, |_| Ok(()))
                .unwrap();
        assert!(outcome.interrupted && outcome.runs.is_empty());
        assert!(progress.asked.load(Ordering::Relaxed) <= taken + 1);
    }

    /// A rank of a run whose first rank cannot store the results.
    #[derive(Default)]
    struct Elsewhere {
        agreed: AtomicU64,
    }

    impl Engine for Elsewhere {
        fn run(
            &self,
            _: &RunConfig,
            _: &dyn Observer,
            _: &RunOptions,
        ) -> Result<Option<RunRecord>, TrainError> {
            Ok(None)
        }

        fn keeps_records(&self) -> bool {
            false
        }

        /// Nobody stops before the run; after it one has failed.
        fn any(&self, _: bool) -> Result<bool, TrainError> {
            Ok(self.agreed.fetch_add(1, Ordering::Relaxed) > 0)
        }
    }

    #[test]
    fn all_ranks_end_if_the_first_cannot_store_the_results() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, progress) = (folder.path(), Watching::default());
        let configs = [config("3lc", |_| {}), config("none", |_| {})];
        let elsewhere = run_all(
            &configs,
            &Records::default(),
            &Elsewhere::default(),
            &progress,
            folder,
            |_| Ok(()),
        );
        let ended = |outcome: Outcome| {
            assert!(outcome.ended && outcome.failures.len() == 1, "{outcome:?}");
            (outcome.runs.len(), outcome.failures[0].to_string())
        };
        let (runs, error) = ended(elsewhere.unwrap());
        assert!(runs == 0 && error.contains("could not store the results"), "{error}");
        // The first rank reports its own reason, and has the result.
        let full = |_: &Records| Err(TestbedError::Config("the disk is full".to_owned()));
        let outcome =
            run_all(&configs, &Records::default(), &Threads, &progress, folder, full).unwrap();
        let (runs, error) = ended(outcome);
        assert!(runs == 1 && error.contains("the disk is full"), "{error}");
    }

    #[test]
    fn a_checkpoint_of_another_run_or_a_damaged_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let one = config("3lc", |_| {});
        assert!(outcome(&one, Some(20), folder).0.interrupted);
        for other in [
            config("none", |_| {}),
            config("3lc", |e| e.workers = 3),
            config("3lc", |e| e.evaluations = 9),
            config("3lc", |e| e.deadline_s = 9.0),
        ] {
            assert_eq!(outcome(&other, None, folder).1, 0);
        }
        let file = &files(folder)[0];
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
        let progress = Watching::default();
        run_all(
            std::slice::from_ref(&one),
            &Records::default(),
            &Threads,
            &progress,
            folder,
            |_| Ok(()),
        )
        .unwrap();
        assert_eq!(*progress.first.lock().unwrap(), Some(0));
        assert!(progress.warnings.lock().unwrap().contains("is damaged"));
        assert!(files(folder).is_empty());
        assert!(outcome(&one, Some(20), folder).0.interrupted);
        let unfinished = files(folder);
        assert_eq!(forget_all(folder).unwrap(), unfinished);
        assert!(unfinished.len() == 1 && files(folder).is_empty());
    }
}
