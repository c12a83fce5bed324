//! The run that was stopped or killed before its end: a checkpoint beside the results, from which it goes on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gradwire_train::{RunConfig, RunOptions, Save, can_resume};

use crate::TestbedError;
use crate::engine::Engine;
use crate::files::check_writable;
use crate::runner::decide;

/// The number of checkpoints of a run, in equal intervals. They are written in addition to the one of a run that is stopped, for
/// runs that are killed.
const CHECKPOINTS: u64 = 10;

/// The checkpoint that belongs to a file of results.
pub fn beside(results: &Path) -> PathBuf {
    results.with_file_name("unfinished.state")
}

/// Removes the checkpoint, if there is one.
///
/// # Errors
/// Those of the file system.
pub fn forget(path: &Path) -> Result<(), TestbedError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TestbedError::write(path)(error)),
        _ => Ok(()),
    }
}

/// How a run goes on from the checkpoint at `path`, if that is one of this run, and writes its own there. The first rank
/// decides for all.
pub(crate) fn options(
    path: &Path,
    config: &RunConfig,
    engine: &dyn Engine,
) -> Result<RunOptions, TestbedError> {
    let keeps = engine.keeps_records();
    if keeps {
        check_writable(path)?;
    }
    let every = config.steps.div_ceil(CHECKPOINTS);
    let save = Some(Save { path: path.to_owned(), every, keep: 1 });
    let resume = decide(engine, keeps && can_resume(path, config))?.then(|| path.to_owned());
    Ok(RunOptions { save, resume, ..RunOptions::default() })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use gradwire_models::data;
    use gradwire_train::{Observer, RunRecord, StepRecord};

    use super::*;
    use crate::engine::Threads;
    use crate::experiment::{Experiment, known};
    use crate::runner::{Outcome, Progress, run_all};

    /// Notes the steps it sees, and stops runs at one of them.
    #[derive(Default)]
    struct Stopping {
        at: Option<u64>,
        steps: Mutex<Vec<u64>>,
    }

    impl Observer for Stopping {
        fn step(&self, record: &StepRecord, _: u64) {
            self.steps.lock().unwrap().push(record.step);
        }

        fn stop(&self) -> bool {
            let steps = self.steps.lock().unwrap();
            self.at.is_some_and(|at| steps.last().is_some_and(|&step| step >= at))
        }
    }

    impl Progress for Stopping {
        fn started(&self, _: usize, _: usize, _: &RunConfig) {}

        fn finished(&self, _: &RunRecord) {}

        fn note(&self, _: &str) {}
    }

    fn runs(compressor: &str) -> Vec<RunConfig> {
        let experiment = Experiment {
            compressors: vec![known(compressor)],
            ..Experiment::default().with(|e| {
                e.model = known("mlp");
                (e.workers, e.batch, e.steps) = (2, 4, 40);
            })
        };
        experiment.runs(&Arc::new(data::embedded_sized(0, 100, 10)))
    }

    /// The outcome of the runs of a compressor, stopped at a step, and the first step that was taken.
    fn outcome(compressor: &str, at: Option<u64>, unfinished: &Path) -> (Outcome, u64) {
        let progress = Stopping { at, ..Stopping::default() };
        let keep = |_: &[RunRecord]| Ok(());
        let outcome = run_all(&runs(compressor), &[], &Threads, &progress, unfinished, keep);
        let first = progress.steps.lock().unwrap()[0];
        (outcome.unwrap(), first)
    }

    #[test]
    fn a_stopped_run_goes_on_with_the_same_bits_and_leaves_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("new/runs.jsonl"));
        let (whole, _) = outcome("3lc", None, &path);
        assert!(!path.exists());
        let (stopped, _) = outcome("3lc", Some(20), &path);
        assert!(stopped.interrupted && stopped.runs.is_empty() && path.exists());
        let (resumed, first) = outcome("3lc", None, &path);
        assert!(first > 20 && !path.exists());
        let (whole, resumed) = (&whole.runs[0], &resumed.runs[0]);
        assert_eq!((&whole.digest, whole.bytes_up), (&resumed.digest, resumed.bytes_up));
        assert_eq!(whole.evaluations, resumed.evaluations);
        assert_eq!(whole.trace.len(), resumed.trace.len());
    }

    /// What a killed process leaves.
    #[test]
    fn checkpoints_are_written_during_a_run() {
        struct Looking<'a>(&'a Path, &'a RunConfig, Mutex<Vec<bool>>);
        impl Observer for Looking<'_> {
            fn step(&self, record: &StepRecord, _: u64) {
                if [2, 30].contains(&record.step) {
                    self.2.lock().unwrap().push(can_resume(self.0, self.1));
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("runs.jsonl"));
        let config = &runs("3lc")[0];
        let options = options(&path, config, &Threads).unwrap();
        assert!(options.resume.is_none());
        let looking = Looking(&path, config, Mutex::default());
        Threads.run(config, &looking, &options).unwrap();
        assert_eq!(*looking.2.lock().unwrap(), [false, true]);
    }

    #[test]
    fn a_checkpoint_of_another_run_or_a_damaged_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("runs.jsonl"));
        let stop = |compressor| outcome(compressor, Some(20), &path);
        assert!(stop("none").0.interrupted);
        assert_eq!(stop("3lc").1, 0);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(outcome("3lc", None, &path).1, 0);
    }
}
