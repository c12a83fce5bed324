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

    /// Whether a run belongs to this part: it differs in none of the settings that the study `varies`.
    fn has(&self, run: &RunRecord, varies: &[&str]) -> bool {
        let mut differences = differences(&self.experiment.settings, run);
        differences.all(|(setting, ..)| !varies.contains(&setting.name))
    }
}

/// The names of the settings in which parts differ from the first.
fn varied(parts: &[Part]) -> Vec<&'static str> {
    let text = |part: &Part, setting: &Setting| setting.text(&part.experiment.settings);
    let differs = |setting: &&Setting| {
        parts.iter().any(|part| text(part, setting) != text(&parts[0], setting))
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
            Part { experiment, runs }
        };
        // All compressors, so that parts differ in the same settings whichever are asked for.
        let compressors = self.compressors(row, experiment.steps);
        let whole = experiment.clone().with(|e| e.compressors = compressors);
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
    let varies = varied(parts);
    for part in parts {
        let (mine, others): (Vec<_>, Vec<_>) =
            results::read(kept)?.into_iter().partition(|run| part.has(run, &varies));
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
        let part = |exchange: &str| {
            let experiment = Experiment::default().with(|e| e.exchange = known(exchange));
            Part { experiment, runs: Vec::new() }
        };
        let parts = [part("all-reduce"), part("all-gather")];
        assert_eq!(varied(&parts), ["exchange"]);
        let of = |part: &Part| {
            let settings = part.experiment.settings.clone();
            RunRecord { settings, ..synthetic::run("none", 0) }
        };
        let mut run = of(&parts[1]);
        let owners = |run: &RunRecord| parts.each_ref().map(|part| part.has(run, &["exchange"]));
        assert_eq!(owners(&run), [false, true]);
        // A run with another optimizer is the part's, so that its settings are compared and it is refused.
        run.optimizer = known("adam");
        assert_eq!(owners(&run), [false, true]);
        assert!(varied(&parts[..1]).is_empty());
    }

    #[test]
    fn a_fraction_of_the_steps_is_at_least_one_step() {
        assert_eq!(steps_of(1000, 0.25), 250);
        assert_eq!(steps_of(1, 0.25), 1);
    }
}
