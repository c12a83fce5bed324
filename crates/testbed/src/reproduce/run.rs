//! The runs of a study: planned, executed, and stored in its folder.

use std::path::Path;
use std::sync::Arc;

use gradwire_models::data::Dataset;
use gradwire_train::settings::{SETTINGS, Setting};
use gradwire_train::{CompressionSchedule, RunConfig, RunRecord};

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
    /// The names of the settings that the study varies, whether or not the user asked for one number of workers.
    pub varies: Vec<&'static str>,
    /// Its runs, of all lengths, with the compressors that were asked for.
    pub runs: Vec<RunConfig>,
}

impl Part {
    /// The finished runs with compressors of this part that were not asked for, and that its page shows all the same.
    fn others<'a>(&'a self, done: &'a [RunRecord]) -> impl Iterator<Item = &'a RunRecord> {
        let is = |run: &RunRecord, one: &CompressionSchedule| one.to_string() == run.compressor;
        done.iter().filter(move |run| {
            self.experiment.compressors.iter().any(|one| is(run, one))
                && !self.runs.iter().any(|asked| is(run, &asked.compressor))
        })
    }

    /// Whether a run belongs to this part: it differs in none of the settings that the study varies.
    fn has(&self, run: &RunRecord) -> bool {
        let mut differences = differences(&self.experiment.settings, run);
        differences.all(|(setting, ..)| !self.varies.contains(&setting.name))
    }
}

/// The names of the settings in which experiments differ from the first.
fn varied(experiments: &[Experiment]) -> Vec<&'static str> {
    let text = |one: &Experiment, setting: &Setting| setting.text(&one.settings);
    let differs = |setting: &&Setting| {
        experiments.iter().any(|one| text(one, setting) != text(&experiments[0], setting))
    };
    SETTINGS.iter().filter(differs).map(|setting| setting.name).collect()
}

impl Study {
    /// The parts of a row on `data`, with the compressors of `experiment` only. Each run is repeated for each of
    /// `fractions` of its steps. `workers` is the number of workers that the user asked for, if any.
    pub fn parts(
        &self,
        row: usize,
        experiment: &Experiment,
        fractions: &[f64],
        workers: Option<usize>,
        data: &Arc<Dataset>,
    ) -> Vec<Part> {
        // All compressors, so that parts differ in the same settings whichever are asked for.
        let compressors = self.compressors(row, experiment.steps);
        let whole = experiment.clone().with(|e| e.compressors = compressors);
        let varies = varied(&(self.variants)(row, &whole, None));
        let compared = |run: &RunConfig| experiment.compressors.contains(&run.compressor);
        let part = |experiment: Experiment| {
            let steps = experiment.steps_on(data);
            let of_length = |fraction: &f64| {
                let shortened = experiment.clone().with(|e| {
                    e.epochs = None;
                    e.steps = steps_of(steps, *fraction);
                });
                shortened.runs(data)
            };
            let runs = fractions.iter().flat_map(of_length).filter(compared).collect();
            Part { experiment, varies: varies.clone(), runs }
        };
        (self.variants)(row, &whole, workers).into_iter().map(part).collect()
    }
}

/// Executes the runs of `parts` that are not in the result file `kept`, and adds each to it when it ends. A
/// [checkpoint](crate::unfinished) of an unfinished run lies beside that file. The outcome also has the finished runs with other compressors of the parts.
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
            results::read(kept)?.into_iter().partition(|run| part.has(run));
        let keep = |mine: &[RunRecord]| results::write(kept, &[&others, mine].concat());
        let mut of_part = run_all(
            &part.runs,
            &mine,
            engine,
            progress,
            kept.parent().unwrap_or(Path::new(".")),
            keep,
        )?;
        of_part.runs.extend(part.others(&mine).cloned());
        // In the order of the study, so that `none` is the first.
        let order: Vec<String> =
            part.experiment.compressors.iter().map(CompressionSchedule::to_string).collect();
        of_part.runs.sort_by_key(|run| order.iter().position(|one| *one == run.compressor));
        outcome.add(of_part);
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
    use crate::experiment::known;
    use crate::synthetic;

    #[test]
    fn runs_belong_to_a_part_by_what_the_study_varies() {
        let of = |exchange: &str| Experiment::default().with(|e| e.exchange = known(exchange));
        let experiments = ["all-reduce", "all-gather"].map(of);
        let varies = varied(&experiments);
        assert_eq!(varies, ["exchange"]);
        assert!(varied(&experiments[..1]).is_empty());
        let parts = experiments.map(|experiment| Part {
            experiment,
            varies: varies.clone(),
            runs: Vec::new(),
        });
        let settings = parts[1].experiment.settings.clone();
        let mut run = RunRecord { settings, ..synthetic::run("none", 0) };
        let owners = |run: &RunRecord| parts.each_ref().map(|part| part.has(run));
        assert_eq!(owners(&run), [false, true]);
        // A run with another optimizer is the part's, so that its settings are compared and it is refused.
        run.optimizer = known("adam");
        assert_eq!(owners(&run), [false, true]);
    }

    #[test]
    fn a_fraction_of_the_steps_is_at_least_one_step() {
        assert_eq!(steps_of(1000, 0.25), 250);
        assert_eq!(steps_of(1, 0.25), 1);
    }
}
