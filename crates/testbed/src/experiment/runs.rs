//! The runs of an experiment, and their data, steps and links.

use std::path::Path;
use std::sync::Arc;

use gradwire::registry::crate_of;
use gradwire_models::data::{self, DataError, Dataset};
use gradwire_models::tasks::TaskConfig;
use gradwire_train::CompressionSchedule;
use gradwire_train::RunConfig;
use gradwire_train::settings::TrainingSettings;

use super::Experiment;
use crate::TestbedError;

impl Experiment {
    /// Loads the data set. A known name is looked for in the folders of data sets; any other text,
    /// or a known name without such a folder, is a path. `./mnist` is always a path.
    pub fn load_data(&self) -> Result<Arc<Dataset>, TestbedError> {
        let path = Path::new(&self.data);
        let catalogue = data::catalogue();
        let known = catalogue.iter().any(|known| known.name == self.data);
        let is_of = |krate| catalogue.iter().any(|known| crate_of(known.name) == Some(krate));
        if !path.exists() && crate_of(&self.data).is_some_and(is_of) {
            return Ok(Arc::new(data::find(&self.data, None)?));
        }
        let folder = path.exists() || path.components().count() != 1;
        let data = match known || !folder {
            true => data::find(&self.data, None),
            false => data::load(path),
        };
        let data = match data {
            Err(DataError::NotFound { .. }) if folder => data::load(path),
            other => other,
        };
        Ok(Arc::new(data?))
    }

    /// Steps of each run on `data`.
    pub fn steps_on(&self, data: &Dataset) -> u64 {
        match self.epochs {
            None => self.steps,
            Some(epochs) => {
                let &TrainingSettings { workers, batch, .. } = &self.settings;
                let config = TaskConfig { workers, batch, augment: false, seed: 0 };
                // A model that cannot learn from the data is refused when the run is checked.
                let task = self.model.task(data);
                let an_epoch = task.map_or(1.0, |task| task.steps_per_epoch(&config));
                ((epochs * an_epoch).ceil() as u64).max(1)
            }
        }
    }

    /// The runs on `data`: all compressors for the first seed, then for the next.
    pub fn runs(&self, data: &Arc<Dataset>) -> Vec<RunConfig> {
        self.runs_with(data, |compressor| self.settings_of(compressor))
    }

    /// The runs of a comparison on `data`: as [`runs`](Self::runs), with the settings of
    /// [`compared`](Self::compared).
    pub fn comparison(&self, data: &Arc<Dataset>) -> Vec<RunConfig> {
        self.runs_with(data, |compressor| self.compared(compressor))
    }

    /// The settings of the runs of a compressor in a comparison. No rule applies to `none`: it is
    /// the baseline, which nothing compresses.
    pub fn compared(&self, compressor: &CompressionSchedule) -> TrainingSettings {
        let specs = || compressor.specs();
        match self.rules.is_empty() || specs().any(|spec| !spec.entry().is_identity()) {
            true => self.settings_of(compressor),
            false => self.clone().with(|e| e.rules.clear()).settings_of(compressor),
        }
    }

    fn runs_with(
        &self,
        data: &Arc<Dataset>,
        settings: impl Fn(&CompressionSchedule) -> TrainingSettings,
    ) -> Vec<RunConfig> {
        let steps = self.steps_on(data);
        let run = |(seed, compressor): (u64, &CompressionSchedule)| {
            let settings = TrainingSettings { steps, ..settings(compressor) };
            RunConfig {
                seed,
                evaluate_every: steps.div_ceil(self.evaluations),
                diagnose_every: if self.diagnose { steps.div_ceil(DIAGNOSES) } else { 0 },
                ..RunConfig::new(settings, Arc::clone(data), compressor.clone())
            }
        };
        let with_seed = |&seed| self.compressors.iter().map(move |compressor| (seed, compressor));
        self.seeds.iter().flat_map(with_seed).map(run).collect()
    }
}

/// The number of diagnoses in a run.
const DIAGNOSES: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::known;

    #[test]
    fn epochs_become_steps() {
        let data = data::embedded_sized(0, 100, 10);
        let mut experiment = Experiment::default();
        (experiment.workers, experiment.batch, experiment.epochs) = (2, 8, Some(1.0));
        // 100 examples, 16 a step.
        assert_eq!(experiment.steps_on(&data), 7);
        experiment.epochs = None;
        assert_eq!(experiment.steps_on(&data), experiment.steps);
    }

    #[test]
    fn no_rule_compresses_the_baseline_of_a_comparison() {
        let data = Arc::new(data::embedded_sized(0, 100, 10));
        let experiment = Experiment::default().with(|e| {
            e.compressors =
                ["none", "none:every=5", "3lc", "none until 9 then topk"].map(known).to_vec();
            e.rules = vec![known(">=1000 -> powersgd")];
        });
        let rules = |runs: Vec<RunConfig>| -> Vec<usize> {
            runs.iter().map(|run| run.rules.len()).collect()
        };
        assert_eq!(rules(experiment.comparison(&data)), [0, 0, 1, 1]);
        assert_eq!(rules(experiment.runs(&data)), [1, 1, 1, 1]);
        // The rule would keep `none` from an all-reduce if its messages did not add up.
        let onebit = experiment.with(|e| e.rules = vec![known(">=1000 -> onebit")]);
        let exchange = |runs: Vec<RunConfig>| runs[0].exchange.to_string();
        assert_eq!(exchange(onebit.comparison(&data)), "all-reduce");
        assert_eq!(exchange(onebit.runs(&data)), "scatter-reduce");
    }

    #[test]
    fn each_seed_runs_every_compressor() {
        let data = Arc::new(data::embedded_sized(0, 100, 10));
        let experiment = Experiment {
            compressors: vec![known("none"), known("3lc")],
            seeds: vec![5, 6],
            ..Experiment::default()
        };
        let runs: Vec<(String, u64)> =
            experiment.runs(&data).iter().map(|r| (r.compressor.to_string(), r.seed)).collect();
        let named = |spec: &str, seed| (spec.to_owned(), seed);
        assert_eq!(runs, [named("none", 5), named("3lc", 5), named("none", 6), named("3lc", 6)]);
    }
}
