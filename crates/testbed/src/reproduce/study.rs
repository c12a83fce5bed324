//! The definition of a study, and the input of its page.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use gradwire::suggestion;
use gradwire_exchange::{Exchange, Link};
use gradwire_models::optim::OptimizerKind;
use gradwire_train::settings::SETTINGS;
use gradwire_train::{CompressionSchedule, RunRecord};

use crate::TestbedError;
use crate::experiment::{ExchangeChoice, Experiment, known};
use crate::plot::Figure;
use crate::runner::Progress;
use crate::summary::{Summary, summarize};
use crate::table::Table;

/// A study that `gradwire reproduce` runs: a table or figure of a paper, or a measurement of this
/// project's own.
///
/// A new study is a constant of this type, and one line in [`STUDIES`](super::STUDIES).
#[derive(Debug, Clone, Copy)]
pub struct Study {
    /// Its name on the command line.
    pub id: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The paper, in a line; empty if there is none.
    pub citation: &'static str,
    /// The rows of the paper's table. One row is run at a time; the first is the default. Empty if
    /// there is no choice. Functions take a row as its index in this list, or 0 if the list is
    /// empty.
    pub rows: &'static [&'static str],
    /// The fractions of the number of steps to train for, each above 0, up to 1. Each fraction is a
    /// separate run that goes through the whole learning rate schedule.
    pub fractions: &'static [f64],
    /// The refused flags: the study sets these settings itself.
    pub fixed: &'static [&'static str],
    /// Whether its workers may be processes of an MPI job.
    pub runs_under_mpi: bool,
    /// The default experiment of a row; `None` for a study that trains nothing.
    pub experiment: Option<fn(row: usize) -> Experiment>,
    /// The compressors of runs with this many steps, if they depend on the number of steps.
    pub(super) compressors_by_steps: Option<fn(steps: u64) -> Vec<CompressionSchedule>>,
    /// Makes the experiments of the compared set-ups from the experiment of a row. `workers` is the
    /// requested number of workers, if any.
    pub(super) variants: fn(row: usize, &Experiment, workers: Option<usize>) -> Vec<Experiment>,
    /// Makes its page from the runs. A study that trains nothing does its measurements here.
    pub(super) report: fn(&Results<'_>, &dyn Progress) -> Result<Report, TestbedError>,
}

impl Study {
    /// Defaults: no rows, one process, one set-up, all steps, and no fixed flags.
    pub(super) const PLAIN: Self = Self {
        id: "",
        summary: "",
        citation: "",
        rows: &[],
        fractions: &[1.0],
        fixed: &[],
        runs_under_mpi: false,
        experiment: None,
        compressors_by_steps: None,
        variants: |_, experiment, _| vec![experiment.clone()],
        report: |_, _| Ok(Report::default()),
    };

    /// The compressors it compares in runs of `steps` steps; `none` is the first.
    pub fn compressors(&self, row: usize, steps: u64) -> Vec<CompressionSchedule> {
        match (self.compressors_by_steps, self.experiment) {
            (Some(compressors), _) => compressors(steps),
            (None, Some(experiment)) => experiment(row).compressors,
            (None, None) => Vec::new(),
        }
    }

    /// The study's compressors that `asked` names, in the study's order; all if `asked` is empty.
    ///
    /// # Errors
    /// If it does not compare one of them.
    pub fn compressors_among(
        &self,
        row: usize,
        steps: u64,
        asked: &[CompressionSchedule],
    ) -> Result<Vec<CompressionSchedule>, TestbedError> {
        let all = self.compressors(row, steps);
        if let Some(other) = asked.iter().find(|one| !all.contains(one)) {
            let known: Vec<String> = all.iter().map(CompressionSchedule::to_string).collect();
            let (id, known) = (self.id, known.join(", "));
            let reason = format!("{id} does not compare '{other}'; it compares: {known}");
            return Err(TestbedError::Config(reason));
        }
        Ok(all.into_iter().filter(|one| asked.is_empty() || asked.contains(one)).collect())
    }

    /// The study's compressors that `experiment` or `runs` have.
    pub fn compressors_of(
        &self,
        row: usize,
        experiment: &Experiment,
        runs: &[RunRecord],
    ) -> Vec<CompressionSchedule> {
        let ran = |one: &CompressionSchedule| {
            let text = one.to_string();
            runs.iter().any(|run| run.compressor == text)
        };
        let all = self.compressors(row, experiment.steps).into_iter();
        all.filter(|one| experiment.compressors.contains(one) || ran(one)).collect()
    }

    /// Refuses an experiment that changes a setting that the study fixes.
    ///
    /// # Errors
    /// The key of the setting, and its line in an experiment file of this study.
    pub fn check_fixed(&self, row: usize, experiment: &Experiment) -> Result<(), TestbedError> {
        if experiment.exchange == ExchangeChoice::Auto {
            return Err(TestbedError::Config(format!(
                "{} compares runs with the same exchange; give one, such as all-gather or server, \
                 in place of auto",
                self.id
            )));
        }
        let Some(own) = self.experiment else { return Ok(()) };
        let (own, given) = (own(row).to_toml(), experiment.to_toml());
        let keys = self.fixed.iter().filter_map(|flag| key_of(flag));
        let mut lines = keys.map(|key| (key, line_of(key, &own), line_of(key, &given)));
        let Some((key, own, given)) = lines.find(|(_, own, given)| own != given) else {
            return Ok(());
        };
        let remedy = match own {
            Some(line) => format!(
                "write '{line}' in the experiment file; a missing key has its general default"
            ),
            None => format!("leave '{}' out of the experiment file", given.unwrap_or_default()),
        };
        Err(TestbedError::Config(format!("{} sets {key} itself; {remedy}", self.id)))
    }

    /// The index of the named row of its table, or of the first row.
    ///
    /// # Errors
    /// If it has no such row, or no rows.
    pub fn row(&self, name: Option<&str>) -> Result<usize, TestbedError> {
        let (id, rows) = (self.id, self.rows);
        let Some(name) = name else { return Ok(0) };
        if rows.is_empty() {
            return Err(TestbedError::Config(format!(
                "{id} has no rows to choose from; leave out --row"
            )));
        }
        rows.iter().position(|row| *row == name).ok_or_else(|| {
            let (near, known) = (suggestion(name, rows.iter().copied()), rows.join(", "));
            TestbedError::Config(format!("{id} has no row '{name}'{near}; known ones: {known}"))
        })
    }

    /// The default folder of its files: `results/ID`, with a subfolder for each row.
    pub fn default_folder(&self, row: usize) -> PathBuf {
        ["results", self.id].into_iter().chain(self.rows.get(row).copied()).collect()
    }
}

/// The key of a flag in experiment files; `None` for fractions and compressors, which studies do
/// not read from files.
fn key_of(flag: &str) -> Option<&'static str> {
    let setting = SETTINGS.iter().find(|setting| setting.flag == flag);
    setting.map(|setting| setting.name).or((flag == "seed").then_some("seeds"))
}

/// The line of a key in an experiment file written by gradwire.
fn line_of<'a>(key: &str, toml: &'a str) -> Option<&'a str> {
    toml.lines().find(|line| line.split_once(" = ").is_some_and(|(name, _)| name == key))
}

/// The input of a study's page.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    /// The study.
    pub study: &'a Study,
    /// The row of the paper's table.
    pub row: usize,
    /// The experiment; the default one if the study trains nothing.
    pub experiment: &'a Experiment,
    /// The runs, of all variants and lengths.
    pub runs: &'a [RunRecord],
    /// Why other runs failed, a line for each.
    pub failed: &'a [String],
    /// The folder that the page is written to.
    pub out: &'a Path,
    /// The command that repeats the study.
    pub command: &'a str,
    /// A person's notes about the runs, as Markdown; empty without notes.
    pub notes: &'a str,
}

impl Results<'_> {
    /// The page of the study.
    ///
    /// # Errors
    /// If there is nothing to show, a measurement fails, or `progress` asks to stop one.
    pub fn report(&self, progress: &dyn Progress) -> Result<Report, TestbedError> {
        (self.study.report)(self, progress)
    }

    /// The runs with the most steps, and their summary.
    ///
    /// # Errors
    /// If there are no runs.
    pub(super) fn summarized(&self) -> Result<(Vec<RunRecord>, Summary), TestbedError> {
        let steps = self.runs.iter().map(|run| run.steps).max();
        let longest = self.runs.iter().filter(|run| Some(run.steps) == steps);
        let longest: Vec<RunRecord> = longest.cloned().collect();
        let summary = summarize(&longest, &self.experiment.links)?;
        Ok((longest, summary))
    }
}

/// A study's page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Names and contents of the files in the study's folder: a `README.md`, and the files it
    /// refers to.
    pub files: Vec<(String, String)>,
    /// What the command prints.
    pub printed: Vec<Printed>,
}

/// A part of what `gradwire reproduce` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Printed {
    /// A table.
    Table(Table),
    /// Lines of text.
    Text(String),
}

impl From<Table> for Printed {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<String> for Printed {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Figures with the names of their files.
pub(super) type Charts = Vec<(String, Rc<dyn Figure>)>;

/// A figure with the name of its file.
pub(super) fn chart(
    name: impl Into<String>,
    figure: impl Figure + 'static,
) -> (String, Rc<dyn Figure>) {
    (name.into(), Rc::new(figure))
}

/// The default experiment with a parameter server. A study names any other exchange.
pub(super) fn with_server() -> Experiment {
    Experiment::default().with(|e| e.exchange = Exchange::default().into())
}

/// The common part of experiments of several papers: a model with its data, an optimizer with its
/// learning rate, and an all-gather of messages of all tensors.
pub(super) fn all_gathered(
    [model, data]: [&str; 2],
    [optimizer, learning_rate]: [&str; 2],
) -> Experiment {
    Experiment::default().suiting_own(model).with(|e| {
        e.data = data.to_owned();
        e.exchange = known("all-gather");
        e.optimizer = known(optimizer);
        e.learning_rate = known(learning_rate);
        e.weight_decay = 0.0;
        e.raw_vectors = false;
        e.raw_below = 0;
        e.evaluate_at_most = 10_000;
        e.links = [10.0, 100.0, 1000.0].map(Link::mbit).to_vec();
    })
}

/// Compressors from their specs.
pub(super) fn schedules<S: AsRef<str>>(
    specs: impl IntoIterator<Item = S>,
) -> Vec<CompressionSchedule> {
    specs.into_iter().map(|spec| known(spec.as_ref())).collect()
}

/// Splits an experiment by exchange: compressors whose messages add use all-reduce; all others, and
/// schedules of several compressors, use all-gather. Leaves out an exchange without compressors.
pub(super) fn by_exchange(experiment: &Experiment) -> Vec<Experiment> {
    let adds = |schedule: &CompressionSchedule| {
        schedule.is_of_one() && schedule.first().entry().compressor().adds()
    };
    let (reduced, gathered): (Vec<_>, Vec<_>) =
        experiment.compressors.iter().cloned().partition(adds);
    let groups = [(Exchange::AllReduce, reduced), (Exchange::AllGather, gathered)];
    let used = groups.into_iter().filter(|(_, compressors)| !compressors.is_empty());
    let variant = |(exchange, compressors): (Exchange, _)| {
        experiment.clone().with(|e| (e.exchange, e.compressors) = (exchange.into(), compressors))
    };
    used.map(variant).collect()
}

/// Splits an experiment whose optimizer is momentum: compressors whose memory applies momentum are
/// trained with plain SGD, so momentum is applied once. Experiments with other optimizers are not
/// split, not even with Adam, for which DGC's correction is not defined.
pub(super) fn by_momentum(experiment: &Experiment) -> Vec<Experiment> {
    if !matches!(experiment.optimizer, OptimizerKind::Momentum(_)) {
        return vec![experiment.clone()];
    }
    let (own, others): (Vec<_>, Vec<_>) =
        experiment.compressors.iter().cloned().partition(|one| one.first().applies_momentum());
    let of = |compressors| experiment.clone().with(|e| e.compressors = compressors);
    let plain = of(own).with(|e| e.optimizer = OptimizerKind::Sgd);
    [of(others), plain].into_iter().filter(|part| !part.compressors.is_empty()).collect()
}
