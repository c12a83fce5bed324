//! Small configurations, and runs that are stopped, resumed or refused.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gradwire_models::data::{Dataset, embedded_sized};
use gradwire_train::{
    Observer, RunConfig, RunOptions, RunRecord, Save, TrainError, TrainingSettings, run,
};

/// A few digits, the same for all tests.
pub(crate) fn digits() -> Arc<Dataset> {
    static DIGITS: Mutex<Option<Arc<Dataset>>> = Mutex::new(None);
    let mut digits = DIGITS.lock().unwrap();
    Arc::clone(digits.get_or_insert_with(|| Arc::new(embedded_sized(1, 600, 150))))
}

pub(crate) fn config(compressor: &str, exchange: &str) -> RunConfig {
    let settings = TrainingSettings {
        model: "mlp".parse().unwrap(),
        exchange: exchange.parse().unwrap(),
        workers: 2,
        steps: 12,
        batch: 16,
        learning_rate: "cosine:from=0.05".parse().unwrap(),
        evaluate_at_most: 100,
        deadline_s: 60.0,
        ..TrainingSettings::default()
    };
    RunConfig::new(settings, digits(), compressor.parse().unwrap())
        .with(|c| (c.seed, c.check_every) = (5, 4))
}

/// A smaller run of this model, with overlap or without.
pub(crate) fn small(model: &str, compressor: &str, exchange: &str, overlap: bool) -> RunConfig {
    config(compressor, exchange).with(|c| {
        c.model = model.parse().unwrap();
        c.data = Arc::new(embedded_sized(3, 60, 30));
        c.batch = 4;
        c.steps = 6;
        c.overlap = overlap;
        c.evaluate_every = 3;
        c.evaluate_at_most = 30;
    })
}

pub(crate) fn train(config: &RunConfig) -> RunRecord {
    run(config, &(), &RunOptions::default()).unwrap()
}

/// A folder, and the path of a checkpoint in it.
pub(crate) fn checkpoint() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    (folder, path)
}

/// Options that write checkpoints every `every` steps, and keep this number of them.
pub(crate) fn saving(path: &Path, every: u64, keep: usize) -> RunOptions {
    let save = Some(Save { path: path.to_owned(), every, at_end: true, keep });
    RunOptions { save, ..RunOptions::default() }
}

/// Options that resume from a checkpoint.
pub(crate) fn resuming(path: &Path) -> RunOptions {
    RunOptions { resume: Some(path.to_owned()), ..RunOptions::default() }
}

/// Runs until the first worker has taken `steps` steps, and saves a checkpoint. Returns the steps
/// done.
pub(crate) fn stop(config: &RunConfig, steps: u64, path: &Path) -> u64 {
    match run(config, &StopAfter::new(steps), &saving(path, 0, 1)) {
        Err(TrainError::Stopped { step, saved }) if saved.as_deref() == Some(path) => step,
        result => panic!("not stopped: {result:?}"),
    }
}

/// Trains from a checkpoint to the last step.
pub(crate) fn resume(config: &RunConfig, path: &Path) -> Result<RunRecord, TrainError> {
    run(config, &(), &resuming(path))
}

/// The message with which a configuration is refused holds each of `words`.
pub(crate) fn refused(config: &RunConfig, words: &[&str]) {
    let message = run(config, &(), &RunOptions::default()).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
}

/// Stops a run before step `steps` of the first worker, however late the records of steps arrive.
pub(crate) struct StopAfter {
    steps: u64,
    asked: AtomicU64,
}

impl StopAfter {
    pub(crate) fn new(steps: u64) -> Self {
        Self { steps, asked: AtomicU64::new(0) }
    }
}

impl Observer for StopAfter {
    fn stop(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst) >= self.steps
    }
}
