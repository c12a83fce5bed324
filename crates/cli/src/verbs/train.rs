//! `gradwire train`: one run.

use std::fmt::Display;
use std::path::{self, Path, PathBuf};
use std::{io, slice};

use clap::Args;
use gradwire::files;
use gradwire_testbed::experiment::Experiment;
use gradwire_testbed::files::{FileLock, check_writable};
use gradwire_testbed::runner::Progress;
use gradwire_testbed::{results, rows::rows, summary::summarize};
use gradwire_train::CompressionSchedule;
use gradwire_train::{RunOptions, RunRecord, Save, WorkersChanged, is_place_of_checkpoint};

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::numbers::{whole, whole_in};
use crate::overwriting::Force;
use crate::settings::Settings;
use crate::verbs::compare::print_tables;
use crate::verbs::compress::plural;
use crate::{engine, output};

/// Train one model with one compressor.
///
/// With checkpoints to resume from: a resumed run gives the same bits as an uninterrupted one. With
/// --save, Ctrl-C writes a checkpoint before the run ends.
#[derive(Debug, Args)]
pub(crate) struct Train {
    #[command(flatten)]
    settings: Settings,
    /// The compressor, such as 3lc:s=1.75, or a schedule such as 'sbc2 until 0.5 then sbc1'
    /// [default: the experiment file's, or 3lc]
    #[arg(long, value_name = "SPEC")]
    compressor: Option<CompressionSchedule>,
    /// Seed of weights, data order and draws [default: the experiment file's, or 0]
    #[arg(long, value_name = "S", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Write a checkpoint to this file, at the end and when stopped
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Number of steps between checkpoints; 0: write one only at the end and when stopped
    #[arg(long, value_name = "STEPS", requires = "save", default_value_t = 0, value_parser = whole::<u64>)]
    save_every: u64,
    /// The number of checkpoints to keep: FILE, the earlier FILE.1, and so on
    #[arg(long, value_name = "N", requires = "save", default_value_t = 2, value_parser = whole_in(1..=MOST_CHECKPOINTS))]
    keep: usize,
    /// Resume from this checkpoint or, if damaged, the newest intact one; settings must match,
    /// except the number of workers
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write the run with its trace, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON: an array with a row for the run, as compare does
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    force: Force,
}

/// Replaces an experiment file's values by the `flag`, if given. Only one value may remain.
fn choose<T: Clone + Display>(
    flag: &str,
    given: Option<&T>,
    found: &mut Vec<T>,
) -> Result<(), Failure> {
    if let Some(given) = given {
        *found = vec![given.clone()];
    }
    if found.len() == 1 {
        return Ok(());
    }
    let all: Vec<String> = found.iter().map(T::to_string).collect();
    Err(Failure::Input(format!(
        "train makes a single run, but the experiment file has {} ({}); choose one with --{flag}",
        plural(found.len(), flag),
        all.join(", ")
    )))
}

/// The error of a file that cannot be written.
fn refused(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Input(format!("'{}': {error}{}", path.display(), files::remedy(&error)))
}

/// Refuses a file that is named twice or has the path of a checkpoint: one would overwrite the
/// other.
fn refuse_overwritten(checkpoints: &[&PathBuf], files: &[&PathBuf]) -> Result<(), Failure> {
    for path in checkpoints.iter().chain(files) {
        files::target(path).map_err(refused(path))?;
    }
    for (at, file) in files.iter().enumerate() {
        for checkpoint in checkpoints {
            if is_place_of_checkpoint(file, checkpoint).map_err(refused(file))? {
                return Err(Failure::Input(format!(
                    "'{}' would be overwritten, because the checkpoint '{}' uses this name; name another file",
                    file.display(),
                    checkpoint.display()
                )));
            }
        }
        let target = |path| files::target(path).and_then(path::absolute);
        for other in &files[..at] {
            if target(file).map_err(refused(file))? == target(other).map_err(refused(other))? {
                return Err(Failure::Input(format!(
                    "'{}' is named twice, so one file would overwrite the other; name two files",
                    file.display()
                )));
            }
        }
    }
    Ok(())
}

/// A change of the number of workers, as a sentence.
fn changed(change: &WorkersChanged) -> String {
    let WorkersChanged { step, workers, lost } = change;
    let reason = lost.map_or_else(String::new, |rank| format!(", because rank {rank} was lost"));
    format!("From step {step} on, the run had {}{reason}.", plural(*workers, "worker"))
}

/// The most checkpoints of a run.
const MOST_CHECKPOINTS: usize = 1_000_000;

impl Train {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let compressors = vec!["3lc".parse().expect("a spec of the registry")];
        let defaults = Experiment::default().with(|e| e.compressors = compressors);
        let mut experiment = self.settings.experiment_from(defaults)?;
        choose("compressor", self.compressor.as_ref(), &mut experiment.compressors)?;
        choose("seed", self.seed.as_ref(), &mut experiment.seeds)?;
        let checkpoints: Vec<_> = [&self.save, &self.resume].into_iter().flatten().collect();
        let files: Vec<_> = [&self.out, self.settings.file()].into_iter().flatten().collect();
        refuse_overwritten(&checkpoints, &files)?;
        self.out.as_ref().map_or(Ok(()), |path| self.force.check_file(path))?;
        engine::fit(&mut experiment, self.settings.has("workers"))?;
        experiment.check()?;
        let data = experiment.load_data()?;
        let config = experiment.runs(&data).remove(0);
        let save = self.save.clone().map(|path| Save {
            path,
            every: self.save_every,
            at_end: true,
            keep: self.keep,
        });
        let options = RunOptions { save, resume: self.resume.clone(), ..RunOptions::default() };

        let started = engine::start(slice::from_ref(&config))?;
        // Only one of several processes writes.
        let mut locks = Vec::new();
        if started.bars.report() {
            for path in [&self.out, &self.save].into_iter().flatten() {
                check_writable(path)?;
                locks.push(FileLock::new(path)?);
            }
        }
        started.bars.started(0, 1, &config);
        let record = started.engine.run(&config, &started.bars, &options);
        started.bars.clear();
        let Some(record) = record? else { return Ok(()) };
        started.bars.finished(&record);

        let runs = slice::from_ref(&record);
        // Printed before the file is written: if that fails, the result is not lost.
        self.print(runs, &experiment)?;
        if let Some(path) = &self.out {
            results::write(path, runs)?;
        }
        started.bars.saved()
    }

    /// Prints the result of the run.
    fn print(&self, runs: &[RunRecord], experiment: &Experiment) -> Result<(), Failure> {
        let changes = runs.iter().flat_map(|record| &record.changes);
        if self.json || self.form.is_csv() {
            changes.for_each(|change| output::note(changed(change)));
            let rows = rows(runs)?;
            return if self.json {
                output::line(output::json(&rows))
            } else {
                self.form.print_csv(&rows)
            };
        }
        print_tables(&summarize(runs, &experiment.links)?, self.form)?;
        for change in changes {
            output::line(format!("\n{}", changed(change)))?;
        }
        runs.iter().try_for_each(|record| {
            output::line(format!("\nDigest of the parameters: {}", record.digest))
        })
    }
}
