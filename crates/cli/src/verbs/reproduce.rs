//! `gradwire reproduce`: a table of a paper.

use std::path::PathBuf;

use clap::Args;
use gradwire_testbed::engine::Threads;
use gradwire_testbed::files::write_atomic;
use gradwire_testbed::reproduce::{
    COMPRESSOR, Reproduction, adacomp, files, grace, paper_table, part_of,
};
use gradwire_testbed::results;
use gradwire_testbed::runner::{Outcome, run_all};
use gradwire_testbed::summary::summarize;
use gradwire_testbed::table::Grid;
use gradwire_train::run::RunRecord;

use crate::failure::Failure;
use crate::progress::Bars;
use crate::settings::{Settings, command_line};
use crate::verbs::compare::conclude;
use crate::verbs::studies;
use crate::{engine, interrupt, output};

/// Run a paper's table again; print its figures and the measured ones side by side.
///
/// Without a name, lists what there is. Finished runs are kept in the output folder: the same
/// command goes on where an earlier one was stopped. experiments/ has settings for real data.
#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Which table
    name: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// Seed; repeat it for the spread over seeds [default: 0]
    #[arg(long = "seed", value_name = "S")]
    seeds: Vec<u64>,
    /// The row of sbc-table2 (lenet, resnet32, wordlstm, charlstm), of adacomp-table2 (mnist-cnn,
    /// cifar-cnn, bn50-dnn, lstm), or of the survey (resnet20, densenet40, resnet9, vgg16, ncf, lstm,
    /// unet) [default: the first]
    #[arg(long, value_name = "ROW")]
    row: Option<String>,
    /// Part of the steps to train for, each a run of its own; repeatable [default: the paper's]
    #[arg(long = "fraction", value_name = "PART", value_parser = fraction)]
    fractions: Vec<f64>,
    /// The folder for runs, tables and charts [default: results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What experiment.toml says first where it is not all of it.
const VARIED: &str = "# What a study varies by itself, such as exchange, workers or learning rate, runs.jsonl has for \
     each run.\n";

fn fraction(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "give a number such as 0.25".to_owned())?;
    let fits = value > 0.0 && value <= 1.0;
    fits.then_some(value).ok_or_else(|| "give a number above 0, up to 1".to_owned())
}

impl Reproduce {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Some(name) = &self.name else { return list() };
        if let Some(study) = studies::find(name) {
            if self.row.is_some() || !self.fractions.is_empty() || !self.seeds.is_empty() {
                let reason = format!("{name} has no rows, fractions or seeds to choose from");
                return Err(Failure::Input(reason));
            }
            let out = self.out.clone().unwrap_or_else(|| PathBuf::from("results").join(name));
            return study(&self.settings, &out);
        }
        if engine::processes().is_some() {
            return Err(Failure::Input(format!(
                "{name} runs in one process; start it without mpirun"
            )));
        }
        let mut which = Reproduction::find(name)?;
        if let Some(row) = &self.row {
            which = which.with_row(row)?;
        }
        self.refuse_set(which)?;
        let mut experiment = self.settings.experiment(which.experiment())?;
        experiment.compressors = which.compressors(experiment.steps);
        if !self.seeds.is_empty() {
            experiment.seeds = self.seeds.clone();
        }
        experiment.check()?;
        let data = experiment.load_data()?;
        let out = self.out.clone().unwrap_or_else(|| default_folder(which));

        let kept = out.join("runs.jsonl");
        let done = results::read(&kept)?;
        let fractions =
            if self.fractions.is_empty() { which.fractions() } else { self.fractions.clone() };
        interrupt::listen();
        let bars = Bars::new(true);
        let mut outcome = Outcome::default();
        let (mut all, mut planned) = (done, 0);
        let variants = which.variants(&experiment);
        let several = variants.len() > 1;
        for mut variant in variants {
            let steps = variant.steps_on(&data);
            let mut runs = Vec::new();
            for fraction in &fractions {
                variant.epochs = None;
                variant.steps = part_of(steps, *fraction);
                runs.extend(variant.runs(&data));
            }
            planned += runs.len();
            let is_of = |run: &RunRecord| {
                let exchange = variant.exchange.to_string();
                let learning_rate = variant.learning_rate.to_string();
                (run.workers, run.batch, &run.exchange, &run.learning_rate)
                    == (variant.workers, variant.batch, &exchange, &learning_rate)
            };
            let (mine, others): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|run| !several || is_of(run));
            let keep = |mine: &[RunRecord]| results::write(&kept, &[&others, mine].concat());
            let one = run_all(&runs, &mine, &Threads, &bars, keep);
            bars.clear();
            outcome.add(one?);
            all = results::read(&kept)?;
        }
        experiment.steps = experiment.steps_on(&data);
        experiment.epochs = None;
        if !outcome.runs.is_empty() {
            let text =
                if several { VARIED.to_owned() } else { String::new() } + &experiment.to_toml();
            write_atomic(&out.join("experiment.toml"), text.as_bytes())?;
            for (name, text) in files(which, &experiment, &outcome.runs, &command_line())? {
                write_atomic(&out.join(name), text.as_bytes())?;
            }
            let longest = outcome.runs.iter().map(|run| run.steps).max().unwrap_or(0);
            let full: Vec<RunRecord> = outcome
                .runs
                .iter()
                .filter(|run| run.steps == longest || which.is_of_several())
                .cloned()
                .collect();
            let table = paper_table(which, &summarize(&full, &experiment.links())?, &full)?;
            output::line(table.without(COMPRESSOR).terminal())?;
            output::line(format!("\nReport: {}", out.join("report.html").display()))?;
        }
        conclude(outcome, planned)
    }
}

impl Reproduce {
    /// Refuses flags for what a study sets by itself.
    fn refuse_set(&self, which: Reproduction) -> Result<(), Failure> {
        let Settings { exchange, workers, batch, .. } = &self.settings;
        let (exchange, workers, batch) = (exchange.is_some(), workers.is_some(), batch.is_some());
        let given: &[_] = match which {
            Reproduction::Grace(grace::Study::Figure8(_)) => {
                &[("exchange", exchange), ("workers", workers)]
            }
            Reproduction::Grace(_) => &[("exchange", exchange)],
            Reproduction::AdaComp(adacomp::Study::Figure7) => {
                &[("workers", workers), ("batch", batch)]
            }
            _ => &[],
        };
        match given.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => {
                let reason = format!("{} sets --{flag} by itself; leave it off", which.id());
                Err(Failure::Input(reason))
            }
        }
    }
}

fn list() -> Result<(), Failure> {
    let mut grid = Grid::new(["name", "what it is"]);
    for one in Reproduction::ALL {
        grid.push(vec![one.id().to_owned(), one.summary().to_owned()]);
    }
    for (name, summary) in studies::NAMES {
        grid.push(vec![name.to_owned(), summary.to_owned()]);
    }
    output::line(grid.left_aligned().terminal())
}

/// Where results go where no folder is given.
fn default_folder(which: Reproduction) -> PathBuf {
    let folder = PathBuf::from("results").join(which.id());
    match which {
        Reproduction::SbcTable2(row) => folder.join(row.to_string()),
        Reproduction::AdaComp(adacomp::Study::Table2(row)) => folder.join(row.to_string()),
        Reproduction::Grace(study) => folder.join(study.row().to_string()),
        _ => folder,
    }
}
