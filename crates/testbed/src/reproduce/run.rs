//! The runs of a study: planned, executed, and stored in its folder.

use std::path::Path;
use std::sync::Arc;

use gradwire_models::data::Dataset;
use gradwire_train::{RunConfig, RunRecord};

use super::study::Study;
use crate::TestbedError;
use crate::engine::Engine;
use crate::experiment::Experiment;
use crate::results;
use crate::runner::{Outcome, Progress, differences, run_all};

/// One of the experiments of a study, with its runs.
#[derive(Debug, Clone)]
pub struct Part {
    /// The experiment.
    pub experiment: Experiment,
    /// Its runs, of all lengths.
    pub runs: Vec<RunConfig>,
}

impl Part {
    /// Whether a run belongs to this part: it differs in none of the settings that studies vary.
    fn has(&self, run: &RunRecord) -> bool {
        let mut differences = differences(&self.experiment.settings, run);
        differences.all(|(setting, ..)| !VARIED.contains(&setting.name))
    }
}

/// The settings in which the parts of a study may differ.
const VARIED: [&str; 13] = [
    "workers",
    "batch",
    "exchange",
    "overlap",
    "learning_rate",
    "send",
    "optimizer",
    "outer",
    "outer_rate",
    "split",
    "participation",
    "dropout",
    "svrg",
];

impl Study {
    /// The parts of a row on `data`. Each run of `experiment` is repeated for each of `fractions` of its steps. `workers`
    /// is the number of workers that the user asked for, if any.
    pub fn parts(
        &self,
        row: usize,
        experiment: &Experiment,
        fractions: &[f64],
        workers: Option<usize>,
        data: &Arc<Dataset>,
    ) -> Vec<Part> {
        let part = |experiment: Experiment| {
            let steps = experiment.steps_on(data);
            let of_length = |fraction: &f64| {
                let shortened = experiment.clone().with(|e| {
                    e.epochs = None;
                    e.steps = steps_of(steps, *fraction);
                });
                shortened.runs(data)
            };
            let runs = fractions.iter().flat_map(of_length).collect();
            Part { experiment, runs }
        };
        (self.variants)(row, experiment, workers).into_iter().map(part).collect()
    }
}

/// Executes the runs of `parts` that are not in the result file `kept`, and adds each to it when it ends.
///
/// # Errors
/// As for [`run_all`], and if the file cannot be read or written.
pub fn run_parts(
    parts: &[Part],
    kept: &Path,
    engine: &dyn Engine,
    progress: &dyn Progress,
) -> Result<Outcome, TestbedError> {
    let mut outcome = Outcome::default();
    for part in parts {
        let (mine, others): (Vec<_>, Vec<_>) =
            results::read(kept)?.into_iter().partition(|run| parts.len() == 1 || part.has(run));
        let keep = |mine: &[RunRecord]| results::write(kept, &[&others, mine].concat());
        outcome.add(run_all(&part.runs, &mine, engine, progress, keep)?);
    }
    Ok(outcome)
}

/// A fraction of a number of steps, at least one step.
fn steps_of(steps: u64, fraction: f64) -> u64 {
    ((steps as f64 * fraction).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_the_steps_is_at_least_one_step() {
        assert_eq!(steps_of(1000, 0.25), 250);
        assert_eq!(steps_of(1, 0.25), 1);
    }
}
