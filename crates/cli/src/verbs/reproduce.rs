//! `gradwire reproduce`: a study, such as a table of a paper.

use std::path::{Path, PathBuf};

use clap::{Arg, Args};
use gradwire_testbed::experiment::Experiment;
use gradwire_testbed::files::{self, write_atomic};
use gradwire_testbed::reproduce::{Printed, Results, STUDIES, Study, find, run_parts};
use gradwire_testbed::results;
use gradwire_testbed::runner::Progress;
use gradwire_testbed::table::Table;
use gradwire_train::{CompressionSchedule, RunConfig};

use crate::failure::Failure;
use crate::form::Form;
use crate::numbers::{number, whole};
use crate::progress::Bars;
use crate::settings::{Settings, command_line, is_setting};
use crate::verbs::compare::conclude;
use crate::verbs::repeat;
use crate::{engine, interrupt};

/// Repeat a table of a paper, and print its figures beside ours.
///
/// Without a name, lists the studies. The output folder keeps finished runs and the checkpoint of a
/// stopped run, so the same command continues where an earlier command ended. experiments/ has
/// settings for real data.
#[derive(Debug, Args)]
#[command(mut_args(default_of_study))]
pub(crate) struct Reproduce {
    /// The study
    name: Option<String>,
    /// Repeat the runs in each runs.jsonl of this folder and its subfolders with their original
    /// settings, and compare the results. With --row, repeats only runs with this compressor or
    /// line number; with --steps 10, 100 or 1000, compares only the digest after these steps. Exit
    /// code 1 if a run differs
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["name", "compressors", "seeds", "fractions", "out"])]
    check: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// One of the study's compressors; repeat it for several [default: all, even with an experiment
    /// file]
    #[arg(long = "compressor", value_name = "SPEC")]
    compressors: Vec<CompressionSchedule>,
    /// Seed; repeat it for the spread over seeds [default: the study's, or the experiment file's]
    #[arg(long = "seed", value_name = "S", value_parser = whole::<u64>)]
    seeds: Vec<u64>,
    /// The row of sbc-table2 (lenet, resnet32, wordlstm, charlstm), of adacomp-table2 (mnist-cnn,
    /// cifar-cnn, bn50-dnn, lstm), of grace-fig6, grace-fig8 and grace-feedback (resnet20,
    /// densenet40, resnet9, vgg16, ncf, lstm, unet), of grace-fig6-sgd (the first four of those),
    /// or of all-methods (compressors, exchanges) [default: the first]
    #[arg(long, value_name = "ROW")]
    row: Option<String>,
    /// Fraction of the steps to train, in a separate run for each fraction; repeatable [default:
    /// the paper's]
    #[arg(long = "fraction", value_name = "PART", value_parser = fraction)]
    fractions: Vec<f64>,
    /// The folder for runs, tables and charts; if it has a notes.md, the page includes it [default:
    /// results/NAME, or results/NAME/ROW]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

/// The first line of experiment.toml if the study has several experiments.
const VARIED: &str = "# The study itself varies some settings, such as exchange, workers or \
    learning rate; runs.jsonl has the settings of each run.\n";

/// The flag of a setting with its default here.
fn default_of_study(flag: Arg) -> Arg {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    match help.rsplit_once(" [default: ") {
        Some((what, _)) if is_setting(&flag) => flag.help(format!("{what} [default: the study's]")),
        _ => flag,
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let value = number(text).ok().filter(|value| *value > 0.0 && *value <= 1.0);
    value.ok_or_else(|| "give a number above 0, up to 1, such as 0.25".to_owned())
}

impl Reproduce {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(folder) = &self.check {
            return repeat::check(&self.settings, self.row.as_deref(), folder, self.form);
        }
        let Some(name) = &self.name else { return list(self.form) };
        let study = find(name)?;
        let row = study.row(self.row.as_deref())?;
        let out = self.out.clone().unwrap_or_else(|| study.default_folder(row));
        match study.experiment {
            Some(experiment) => self.train(study, row, experiment(row), &out),
            None => self.measure(study, &out),
        }
    }

    /// Makes the page of a study that trains nothing.
    fn measure(&self, study: &Study, out: &Path) -> Result<(), Failure> {
        let given = !self.fractions.is_empty() || !self.seeds.is_empty();
        if given || !self.compressors.is_empty() || self.settings != Settings::default() {
            let reason =
                format!("{} trains nothing; the only flag that it takes is --out", study.id);
            return Err(Failure::Input(reason));
        }
        if engine::processes()?.is_some() {
            return Err(one_process(study));
        }
        interrupt::listen();
        let (experiment, command) = (&Experiment::default(), &command_line());
        let (runs, failed, notes) = (&[], &[], &results::notes(out)?);
        let results = Results { study, row: 0, experiment, runs, failed, out, command, notes };
        show(&results, &Bars::new(true), self.form)
    }

    /// Executes the runs of a study that are not yet in its folder, and makes its page.
    fn train(
        &self,
        study: &Study,
        row: usize,
        experiment: Experiment,
        out: &Path,
    ) -> Result<(), Failure> {
        self.refuse_fixed(study)?;
        let processes = engine::processes()?;
        if processes.is_some() && !study.runs_under_mpi {
            return Err(one_process(study));
        }
        let mut experiment = self.settings.of_study(experiment)?;
        study.check_fixed(row, &experiment)?;
        experiment.compressors =
            study.compressors_among(row, experiment.steps, &self.compressors)?;
        if !self.seeds.is_empty() {
            experiment.seeds = self.seeds.clone();
        }
        experiment.check()?;
        let data = experiment.load_data()?;
        if experiment.epochs.is_some() {
            // Some settings of a study depend on the number of steps, which follows the epochs.
            experiment.steps = experiment.steps_on(&data);
            experiment.compressors =
                study.compressors_among(row, experiment.steps, &self.compressors)?;
        }
        let fractions = if self.fractions.is_empty() { study.fractions } else { &self.fractions };
        let given = self.settings.has("workers").then_some(experiment.workers);
        let workers = given.or(processes);
        let parts = study.parts(row, &experiment, fractions, workers, &data);
        let runs: Vec<RunConfig> = parts.iter().flat_map(|part| part.runs.clone()).collect();
        if self.out.is_none() {
            refuse_other_lengths(out, &runs)?;
        }
        let started = engine::start(&runs)?;
        let bars = &started.bars;
        let _lock = if bars.report() { files::lock(out)? } else { None };
        let outcome = run_parts(&parts, &out.join("runs.jsonl"), &*started.engine, bars);
        bars.clear();
        let outcome = outcome?;
        if bars.report() && !outcome.runs.is_empty() {
            experiment.compressors = study.compressors_of(row, &experiment, &outcome.runs);
            experiment.add_seeds(&outcome.runs);
            experiment.augment = runs.first().and_then(|run| run.resolved().augment);
            let varied = if parts.len() > 1 { VARIED } else { "" };
            let text = varied.to_owned() + &experiment.to_toml();
            self.settings.write_experiment(out, &text)?;
            let (experiment, runs, command) = (&experiment, &outcome.runs, &command_line());
            let (failed, notes) = (&outcome.failed(), &results::notes(out)?);
            let results = Results { study, row, experiment, runs, failed, out, command, notes };
            show(&results, bars, self.form)?;
        }
        conclude(outcome, runs.len(), "the same command continues from there")
    }

    /// Refuses flags of settings that the study fixes.
    fn refuse_fixed(&self, study: &Study) -> Result<(), Failure> {
        let given = |flag: &str| match flag {
            "seed" => !self.seeds.is_empty(),
            "fraction" => !self.fractions.is_empty(),
            "compressor" => !self.compressors.is_empty(),
            _ => self.settings.has(flag),
        };
        let Some(flag) = study.fixed.iter().find(|flag| given(flag)) else { return Ok(()) };
        Err(Failure::Input(format!("{} sets --{flag} itself; leave it out", study.id)))
    }
}

/// The error for a study that is started as several processes.
fn one_process(study: &Study) -> Failure {
    Failure::Input(format!("{} runs in one process; start it without mpirun", study.id))
}

/// Refuses a folder whose runs all differ in length from the new ones: they would replace its page.
fn refuse_other_lengths(out: &Path, runs: &[RunConfig]) -> Result<(), Failure> {
    let kept = results::read(&out.join("runs.jsonl"))?;
    let (Some(old), Some(new)) = (kept.first(), runs.first()) else { return Ok(()) };
    if kept.iter().any(|kept| runs.iter().any(|run| run.steps == kept.steps)) {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "the runs in '{}' have {} steps, but these runs would have {}; give another folder with \
         --out, or the same number of steps",
        out.display(),
        old.steps,
        new.steps
    )))
}

/// Makes and writes the page of a study, and prints its lines for the terminal.
fn show(results: &Results<'_>, progress: &dyn Progress, form: Form) -> Result<(), Failure> {
    let report = results.report(progress)?;
    for (name, text) in &report.files {
        write_atomic(&results.out.join(name), text.as_bytes())?;
    }
    report.printed.iter().try_for_each(|printed| match printed {
        Printed::Table(table) => form.print(table),
        Printed::Text(text) => form.text(text),
    })
}

fn list(form: Form) -> Result<(), Failure> {
    let studies = Table::of(&STUDIES).column("name", |study| study.id);
    let table = studies.column("what it is", |study| study.summary).table();
    form.print(&table.left_aligned())
}
