//! The runs of a study: planned, executed, and stored in its folder.

use std::path::Path;
use std::sync::Arc;

use gradwire_models::data::Dataset;
use gradwire_train::settings::{SETTINGS, Setting, TrainingSettings};
use gradwire_train::{CompressionSchedule, RunConfig, RunRecord};

use super::study::Study;
use crate::engine::Engine;
use crate::experiment::Experiment;
use crate::results;
use crate::runner::{Outcome, Progress, differences, others, run_all};
use crate::{Records, TestbedError};

/// One of the experiments of a study, with its runs.
#[derive(Debug, Clone)]
pub struct StudyPart {
    /// The experiment.
    pub experiment: Experiment,
    /// The names of the settings that the study varies, even if the user asked for one number of
    /// workers.
    pub varies: Vec<&'static str>,
    /// The lengths of its runs, in steps.
    pub lengths: Vec<u64>,
    /// Its runs, of all lengths, with the requested compressors.
    pub runs: Vec<RunConfig>,
}

impl StudyPart {
    /// The finished runs of this part's lengths with its other compressors or with other seeds. The
    /// page shows them as well.
    fn others<'a>(&'a self, done: &'a [RunRecord]) -> impl Iterator<Item = &'a RunRecord> {
        let exchange = self.experiment.settings().exchange;
        others(&self.runs, done).filter(move |run| {
            self.lengths.contains(&run.steps)
                && self.position(run).is_some()
                && run.exchange == exchange
        })
    }

    /// The position of a run's compressor in the study.
    fn position(&self, run: &RunRecord) -> Option<usize> {
        let is = |one: &CompressionSchedule| one.to_string() == run.compressor;
        self.experiment.compressors.iter().position(is)
    }

    /// Whether a run with these settings belongs to this part: it differs in none of the settings
    /// that the study varies.
    fn has(&self, run: &TrainingSettings) -> bool {
        let settings = self.experiment.settings();
        let mut differences = differences(&settings, run);
        differences.all(|(setting, ..)| !self.varies.contains(&setting.name))
    }
}

/// The names of the settings that differ from the first experiment.
fn varied(experiments: &[Experiment]) -> Vec<&'static str> {
    let text = |one: &Experiment, setting: &Setting| setting.text(&one.settings());
    let differs = |setting: &&Setting| {
        experiments.iter().any(|one| text(one, setting) != text(&experiments[0], setting))
    };
    SETTINGS.iter().filter(differs).map(|setting| setting.name).collect()
}

impl Study {
    /// The parts of a row on `data`, with the compressors of `experiment` only. Each run is
    /// repeated for each of `fractions` of its steps. `workers` is the requested number of workers,
    /// if any.
    pub fn parts(
        &self,
        row: usize,
        experiment: &Experiment,
        fractions: &[f64],
        workers: Option<usize>,
        data: &Arc<Dataset>,
    ) -> Vec<StudyPart> {
        // All compressors, so parts differ in the same settings whichever are requested.
        let compressors = self.compressors(row, experiment.steps);
        let whole = experiment.clone().with(|e| e.compressors = compressors);
        let varies = varied(&(self.variants)(row, &whole, None));
        let compared = |run: &RunConfig| experiment.compressors.contains(&run.compressor);
        let part = |experiment: Experiment| {
            let lengths = lengths(experiment.steps_on(data), fractions);
            let of_length = |&steps: &u64| {
                let shortened = experiment.clone().with(|e| (e.epochs, e.steps) = (None, steps));
                shortened.runs(data)
            };
            let runs = lengths.iter().flat_map(of_length).filter(compared).collect();
            StudyPart { experiment, varies: varies.clone(), lengths, runs }
        };
        (self.variants)(row, &whole, workers).into_iter().map(part).collect()
    }
}

/// Executes the runs of `parts` that are missing in the result file `kept`, and adds each when it
/// ends. A [checkpoint](crate::unfinished) of an unfinished run lies beside that file. The outcome
/// also has the finished runs with other compressors of the parts, and with other seeds.
///
/// # Errors
/// As for [`run_all`], and if the file cannot be read or written.
pub fn run_parts(
    parts: &[StudyPart],
    kept: &Path,
    engine: &dyn Engine,
    progress: &dyn Progress,
) -> Result<Outcome, TestbedError> {
    let mut outcome = Outcome::default();
    for part in parts {
        let (mine, others) = results::read_all(kept)?.partition(|settings| part.has(settings));
        let keep = |mine: &Records| results::write_all(kept, &others.joined(mine));
        let mut of_part = run_all(
            &part.runs,
            &mine,
            engine,
            progress,
            kept.parent().unwrap_or(Path::new(".")),
            keep,
        )?;
        of_part.runs.extend(part.others(&mine.runs).cloned());
        // In the order of the study, so `none` is first.
        let length = |run: &RunRecord| part.lengths.iter().position(|steps| *steps == run.steps);
        of_part.runs.sort_by_key(|run| (part.position(run), length(run), run.seed));
        outcome.add(of_part);
        if outcome.ended {
            break;
        }
    }
    Ok(outcome)
}

/// Fractions of a number of steps, each at least one step, and each number once.
fn lengths(steps: u64, fractions: &[f64]) -> Vec<u64> {
    let mut lengths = Vec::new();
    for fraction in fractions {
        let length = ((steps as f64 * fraction).round() as u64).max(1);
        if !lengths.contains(&length) {
            lengths.push(length);
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use gradwire_models::data;

    use super::*;
    use crate::experiment::known;
    use crate::reproduce::study::with_server;
    use crate::synthetic;

    #[test]
    fn runs_belong_to_a_part_by_what_the_study_varies() {
        let of = |exchange: &str| Experiment::default().with(|e| e.exchange = known(exchange));
        let experiments = ["all-reduce", "all-gather"].map(of);
        let varies = varied(&experiments);
        assert_eq!(varies, ["exchange"]);
        assert!(varied(&experiments[..1]).is_empty());
        let part = |experiment| StudyPart {
            experiment,
            varies: varies.clone(),
            lengths: Vec::new(),
            runs: Vec::new(),
        };
        let parts = experiments.map(part);
        let settings = parts[1].experiment.settings();
        let mut run = RunRecord { settings, ..synthetic::run("none", 0) };
        let owners = |run: &RunRecord| parts.each_ref().map(|part| part.has(&run.settings));
        assert_eq!(owners(&run), [false, true]);
        // A run with another optimizer belongs to the part, so its settings are compared and it is
        // refused.
        run.optimizer = known("adam");
        assert_eq!(owners(&run), [false, true]);
    }

    #[test]
    fn runs_with_other_compressors_are_shown_if_they_have_a_length_of_the_part() {
        let experiment = with_server().with(|e| {
            e.compressors = vec![known("none"), known("3lc")];
        });
        let asked = experiment.clone().with(|e| {
            e.compressors.truncate(1);
            e.steps = 10;
        });
        let runs = asked.runs(&Arc::new(data::embedded_sized(0, 100, 10)));
        let mut part = StudyPart { experiment, varies: Vec::new(), lengths: vec![10, 20], runs };
        let of = |(compressor, steps): (&str, u64)| {
            let mut run = synthetic::run(compressor, 0);
            run.steps = steps;
            run
        };
        let done = [("none", 10), ("3lc", 20), ("3lc", 40), ("topk", 10)].map(of);
        assert_eq!(part.others(&done).collect::<Vec<_>>(), [&done[1]]);
        // A requested compressor with another seed.
        let second = RunRecord { seed: 2, ..done[0].clone() };
        let done = [done.to_vec(), vec![second]].concat();
        assert_eq!(part.others(&done).collect::<Vec<_>>(), [&done[1], &done[4]]);
        // Also if none of the part's compressors is requested.
        part.runs.clear();
        assert_eq!(part.others(&done).collect::<Vec<_>>(), [&done[0], &done[1], &done[4]]);
    }

    #[test]
    fn a_fraction_of_the_steps_is_at_least_one_step_and_runs_once() {
        assert_eq!(lengths(1000, &[0.25, 1.0, 0.2501]), [250, 1000]);
        assert_eq!(lengths(1, &[0.25, 1.0]), [1]);
    }
}
