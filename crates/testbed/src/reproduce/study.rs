//! What a study is: everything `gradwire reproduce` needs to run it and to write its page.

use std::path::{Path, PathBuf};

use gradwire_train::CompressionSchedule;
use gradwire_train::RunRecord;

use crate::TestbedError;
use crate::experiment::Experiment;
use crate::plot::Figure;
use crate::runner::Progress;
use crate::summary::{Summary, summarize};

/// A study that `gradwire reproduce` runs: a table or figure of a paper, or a measurement of this project's own.
///
/// A new study is one file with an implementation of this trait, and one line in [`STUDIES`](super::STUDIES).
pub trait Study: Sync {
    /// What it is.
    fn about(&self) -> About;

    /// The experiment that is run unless other settings are given; `None` for a study that trains nothing.
    fn experiment(&self, row: usize) -> Option<Experiment>;

    /// The compressors it compares in runs of `steps` steps; `none` is the first.
    fn compressors(&self, row: usize, steps: u64) -> Vec<CompressionSchedule> {
        let _ = steps;
        self.experiment(row).map(|experiment| experiment.compressors).unwrap_or_default()
    }

    /// The experiments it consists of: one, unless it compares several set-ups. `workers` is how many were asked for,
    /// if a number was.
    fn variants(
        &self,
        row: usize,
        experiment: &Experiment,
        workers: Option<usize>,
    ) -> Vec<Experiment> {
        let _ = (row, workers);
        vec![experiment.clone()]
    }

    /// Makes its page of the runs. A study that trains nothing measures or collects here.
    ///
    /// # Errors
    /// If there is nothing to show, a measurement fails, or `progress` asks to stop one.
    fn report(
        &self,
        results: &Results<'_>,
        progress: &dyn Progress,
    ) -> Result<Report, TestbedError>;
}

/// What a study is, apart from its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it shows, in a line.
    pub summary: &'static str,
    /// The paper it is from, in a line; empty where it is from none.
    pub citation: &'static str,
    /// The rows of the paper's table, of which one is run at a time; the first is the default. Empty where there is
    /// nothing to choose. A study's methods take a row as its place in this list, 0 where it is empty.
    pub rows: Vec<&'static str>,
    /// The parts of the number of steps that it trains for, each in a run of its own whose learning rate goes through
    /// its whole schedule; each above 0, up to 1.
    pub fractions: &'static [f64],
    /// The flags of settings that it sets by itself, and that are therefore refused.
    pub fixed: &'static [&'static str],
    /// Whether its workers may be processes of an MPI job.
    pub runs_under_mpi: bool,
}

impl About {
    /// A study without rows, in one process, for all steps, that sets no flags by itself.
    pub(super) fn of(id: &'static str, summary: &'static str, citation: &'static str) -> Self {
        let (rows, fractions, fixed, runs_under_mpi) = (Vec::new(), &[1.0], &[], false);
        Self { id, summary, citation, rows, fractions, fixed, runs_under_mpi }
    }
}

/// What a study's page is made of.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    /// The row of the paper's table.
    pub row: usize,
    /// The experiment; the default one in studies that train nothing.
    pub experiment: &'a Experiment,
    /// The runs, of all variants and lengths.
    pub runs: &'a [RunRecord],
    /// The folder that the page is written to.
    pub out: &'a Path,
    /// The command that repeats the study.
    pub command: &'a str,
}

impl Results<'_> {
    /// The runs with the most steps.
    pub fn longest(&self) -> Vec<RunRecord> {
        let longest = self.runs.iter().map(|run| run.steps).max();
        self.runs.iter().filter(|run| Some(run.steps) == longest).cloned().collect()
    }

    /// The runs with the most steps, and their summary.
    ///
    /// # Errors
    /// If there are no runs.
    pub(super) fn summarized(&self) -> Result<(Vec<RunRecord>, Summary), TestbedError> {
        let longest = self.longest();
        let summary = summarize(&longest, &self.experiment.links())?;
        Ok((longest, summary))
    }
}

/// A study's page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Names and contents of the files in the study's folder: a `README.md`, and what it shows.
    pub files: Vec<(String, String)>,
    /// Lines for a terminal.
    pub printed: Vec<String>,
}

/// Figures with the names of their files.
pub(super) type Charts = Vec<(String, Box<dyn Figure>)>;

/// The place of a row of a study's table; of the first where none is named.
///
/// # Errors
/// If the study has no such row, or none to choose from.
pub fn row_of(study: &dyn Study, name: Option<&str>) -> Result<usize, TestbedError> {
    let About { id, rows, .. } = study.about();
    let Some(name) = name else { return Ok(0) };
    if rows.is_empty() {
        return Err(TestbedError::Config(format!("{id} has no rows to choose from")));
    }
    rows.iter().position(|row| *row == name).ok_or_else(|| {
        TestbedError::Config(format!("{id} has no row '{name}'; known ones: {}", rows.join(", ")))
    })
}

/// Where a study's files go unless a folder is given: `results/ID`, and a folder in it for each row.
pub fn default_folder(study: &dyn Study, row: usize) -> PathBuf {
    let About { id, rows, .. } = study.about();
    let folder = PathBuf::from("results").join(id);
    match rows.get(row) {
        Some(row) => folder.join(row),
        None => folder,
    }
}

/// Compressors from their specs.
pub(super) fn plans<S: AsRef<str>>(specs: impl IntoIterator<Item = S>) -> Vec<CompressionSchedule> {
    specs.into_iter().map(|spec| crate::experiment::known(spec.as_ref())).collect()
}
