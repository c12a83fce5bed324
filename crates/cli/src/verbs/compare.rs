//! `gradwire compare`: trains with several compressors and compares them.

use std::path::{Path, PathBuf};

use clap::Args;
use gradwire_testbed::changes::{self, Changed, changes};
use gradwire_testbed::comparison::Comparison;
use gradwire_testbed::experiment::Experiment;
use gradwire_testbed::files::{self, write_atomic};
use gradwire_testbed::report;
use gradwire_testbed::runner::{self, Outcome, run_all};
use gradwire_testbed::summary::{Summary, summarize, tables};
use gradwire_testbed::{Records, results, unfinished, verdict};
use gradwire_train::settings::TrainingSettings;
use gradwire_train::{CompressionSchedule, RunConfig, RunRecord};

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::settings::{Settings, Several, command_line};
use crate::{engine, output};

/// Train one model with several compressors, and compare them.
///
/// Compares quality, bytes and time. Without flags, trains LeNet-5 on generated digits with four
/// workers, which takes three to four minutes on two cores. Times and bytes are compared with none,
/// an uncompressed all-reduce as in DistributedDataParallel; each compressor has the exchange that
/// gradwire.torch takes for it. With --exchange all have the same exchange, none included. Rules do
/// not apply to none. Prints tables, and writes a report (one HTML file) and the runs to a folder.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    several: Several,
    /// The folder for report.html, runs.jsonl and experiment.toml
    #[arg(long, value_name = "DIR", default_value = "gradwire-report")]
    out: PathBuf,
    /// Continue the runs in the output folder, including a stopped run. The report then has all
    /// finished runs of the same length in the folder, including other compressors and seeds.
    /// Without --resume, checkpoints of stopped runs are removed, and runs.jsonl is renamed to
    /// runs.jsonl.1, or to the next free number
    #[arg(long)]
    resume: bool,
    /// Compare with the earlier runs in this folder, which have the same settings: prints whether
    /// quality, bits or bytes of a compressor changed. Exit code 1 if one regressed
    #[arg(long, value_name = "FOLDER")]
    baseline: Option<PathBuf>,
    /// Print JSON: runs, compressors with modelled times, verdict, failures and version
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
}

impl Compare {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut experiment = self.settings.experiment()?;
        self.several.apply(&mut experiment);
        engine::fit(&mut experiment, self.settings.has("workers"))?;
        experiment.check()?;
        let data = experiment.load_data()?;
        let runs = experiment.comparison(&data);
        let of_first_seed = runs.iter().filter(|run| run.seed == experiment.seeds[0]);
        of_first_seed.into_iter().try_for_each(engine::check_run)?;
        let started = engine::start(&runs)?;
        let kept = self.out.join("runs.jsonl");
        let before = self.before()?;
        let reports = started.bars.report();
        // Only one of several processes writes.
        let _lock = if reports { files::lock(&self.out)? } else { None };
        let done = if self.resume { results::read_all(&kept)? } else { Records::default() };
        if reports {
            if self.resume && done == Records::default() {
                unfinished::refuse_others(&self.out, &runs)?;
            }
            if !self.resume {
                self.clear(&kept)?;
            }
        }
        let keep = |all: &Records| results::write_all(&kept, all);
        let outcome = run_all(&runs, &done, &*started.engine, &started.bars, &self.out, keep);
        started.bars.clear();
        let mut outcome = outcome?;
        let changed = match &before {
            Some(before) if reports && !outcome.runs.is_empty() => changes(&outcome.runs, before),
            _ => Ok(Vec::new()),
        };
        let mut shown = Ok(());
        if !outcome.runs.is_empty() {
            if reports {
                add_others(&mut experiment, &mut outcome, &runs, &done);
                experiment.augment = runs.first().and_then(|run| run.resolved().augment);
            }
            let changed = changed.as_deref().unwrap_or_default();
            shown = self.show(&experiment, &outcome, changed);
        }
        let concluded = conclude(outcome, runs.len(), "--resume continues from there");
        if let (Err(failure), Err(_)) = (&shown, &concluded) {
            output::note(failure.to_string());
        }
        concluded.and(shown).and_then(|()| refuse_regressed(&changed?))
    }

    /// The earlier runs to compare with, if any.
    fn before(&self) -> Result<Option<Vec<RunRecord>>, Failure> {
        let Some(folder) = &self.baseline else { return Ok(None) };
        let runs = results::read(&folder.join("runs.jsonl"))?;
        if runs.is_empty() {
            let folder = folder.display();
            return Err(Failure::Input(format!(
                "'{folder}' has no runs; give the folder of an earlier comparison, which has a runs.jsonl"
            )));
        }
        Ok(Some(runs))
    }

    /// Sets earlier results aside, removes checkpoints, and says so.
    fn clear(&self, kept: &Path) -> Result<(), Failure> {
        if let Some(aside) = results::set_aside(kept)? {
            output::note(format!("Earlier runs were moved to {}.", aside.display()));
        }
        for checkpoint in unfinished::forget_all(&self.out)? {
            output::note(format!(
                "Removed the checkpoint of a stopped run: {}.",
                checkpoint.display()
            ));
        }
        Ok(())
    }

    /// Prints the result, and writes the report. Prints the result even if the report cannot be
    /// written.
    fn show(
        &self,
        experiment: &Experiment,
        outcome: &Outcome,
        changed: &[Changed],
    ) -> Result<(), Failure> {
        let report = self.out.join("report.html");
        self.print(experiment, outcome, changed)?;
        let html = report::html(experiment, outcome, &command_line())?;
        self.settings.write_experiment(&self.out, &experiment.to_toml())?;
        write_atomic(&report, html.as_bytes())?;
        let place = format!("\nReport: {}", report.display());
        if self.json {
            output::note(place.trim_start());
            return Ok(());
        }
        self.form.text(place)
    }

    /// Prints the tables, or the rows as JSON.
    fn print(
        &self,
        experiment: &Experiment,
        outcome: &Outcome,
        changed: &[Changed],
    ) -> Result<(), Failure> {
        if self.json || self.form.is_csv() {
            let mut comparison = Comparison::of(experiment, outcome)?;
            comparison.changes = self.baseline.is_some().then(|| changed.to_vec());
            return match self.json {
                true => output::line(output::json_of(&comparison)),
                false => self.form.print_csv(&comparison.lines()),
            };
        }
        let summary = summarize(&outcome.runs, &experiment.links)?;
        let summary = summary.with_diverged(&outcome.diverged);
        print_tables(&summary, self.form)?;
        output::line("")?;
        let verdict = verdict::lines(&summary);
        if !verdict.is_empty() {
            self.form.text(format!("{}\n", verdict.join("\n")))?;
        }
        tables::notes(&summary).into_iter().try_for_each(|note| self.form.text(note))?;
        let Some(folder) = &self.baseline else { return Ok(()) };
        output::line(format!("\nSince the runs in {}:", folder.display()))?;
        self.form.print(&changes::table(changed))
    }
}

/// Fails if a compressor regressed since an earlier comparison.
fn refuse_regressed(changed: &[Changed]) -> Result<(), Failure> {
    let regressed = changes::regressed(changed);
    if regressed.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(format!("regressed since the earlier runs: {}", regressed.join(", "))))
}

/// Adds other runs of the same length to the shown runs, and their compressors and seeds to the
/// experiment. Names the runs that are left out.
fn add_others(
    experiment: &mut Experiment,
    outcome: &mut Outcome,
    runs: &[RunConfig],
    done: &Records,
) {
    let (mut added, mut left_out) = (false, Vec::new());
    for run in runner::others(runs, &done.runs) {
        if !is_compared(experiment, runs, &run.compressor, &run.settings) {
            left_out
                .push(format!("{} with seed {} and {} steps", run.compressor, run.seed, run.steps));
            continue;
        }
        // Without its crate a compressor cannot be part of the experiment, but its run is shown.
        if let Ok(compressor) = run.compressor.parse::<CompressionSchedule>()
            && !experiment.compressors.contains(&compressor)
        {
            experiment.compressors.push(compressor);
        }
        outcome.runs.push(run.clone());
        added = true;
    }
    let diverged = runner::others_diverged(runs, &done.diverged);
    let compared =
        diverged.filter(|run| is_compared(experiment, runs, &run.compressor, &run.settings));
    outcome.diverged.extend(compared.cloned());
    if added {
        experiment.add_seeds(&outcome.runs);
        let order: Vec<String> = experiment.compressors.iter().map(ToString::to_string).collect();
        let place = |run: &RunRecord| {
            order.iter().position(|one| *one == run.compressor).unwrap_or(order.len())
        };
        outcome.runs.sort_by_key(|run| (place(run), run.seed));
    }
    if !left_out.is_empty() {
        output::note(format!("Left out of the report: {}.", left_out.join(", ")));
    }
}

/// Whether an earlier run with these settings can be compared with these runs: it has the same
/// length, and the exchange and the rules that the experiment gives its compressor.
fn is_compared(
    experiment: &Experiment,
    runs: &[RunConfig],
    compressor: &str,
    settings: &TrainingSettings,
) -> bool {
    let Ok(compressor) = compressor.parse() else { return settings.steps == runs[0].steps };
    let expected = experiment.compared(&compressor);
    (settings.steps, settings.exchange, &settings.rules)
        == (runs[0].steps, expected.exchange, &expected.rules)
}

/// Prints the tables of quality and traffic, and of time; says if a compressor saves no traffic.
pub(crate) fn print_tables(summary: &Summary, form: Form) -> Result<(), Failure> {
    form.print(&tables::traffic(summary))?;
    output::line("")?;
    if let Some(note) = tables::beyond_all_reduce(summary) {
        form.text(format!("{note}\n"))?;
    }
    form.print(&tables::time(summary))
}

/// Succeeds if all runs are done. Otherwise the error names the missing runs, the reason, and how
/// to continue.
pub(crate) fn conclude(
    mut outcome: Outcome,
    wanted: usize,
    to_continue: &str,
) -> Result<(), Failure> {
    if outcome.interrupted {
        let done = outcome.done;
        let reason = format!("{done} of {wanted} runs are done; {to_continue}");
        return Err(Failure::Interrupted(reason));
    }
    let Some(last) = outcome.failures.pop() else { return Ok(()) };
    for failure in &outcome.failures {
        output::note(format!("error: {failure}"));
    }
    Err(last.into())
}
