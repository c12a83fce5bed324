//! The configuration of a training run.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use gradwire_exchange::{CompressionSchedule, Exchange};
use gradwire_models::data::{Dataset, can_move};
use sha2::{Digest as _, Sha256};

use crate::error::TrainError;
use crate::settings::{SETTINGS, TrainingSettings};

/// Everything that defines a run; the same configuration gives the same bits (except with backup or
/// asynchronous workers, whose steps depend on which pushes arrive first). Dereferences to its
/// settings: `config.workers`.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// The settings.
    pub settings: TrainingSettings,
    /// The data set.
    pub data: Arc<Dataset>,
    /// Compressor, memory and local steps, for each step of the run.
    pub compressor: CompressionSchedule,
    /// Seeds initial parameters, data order, augmentation, dropout and every random draw of
    /// compressors.
    pub seed: u64,
    /// Steps between evaluations on the test set; the last step is always evaluated. 0: only the
    /// last.
    pub evaluate_every: u64,
    /// Steps between comparisons of a digest of the parameters across ranks; 0: none.
    pub check_every: u64,
    /// Steps between diagnoses of the first worker's gradients and residuals; 0: none.
    pub diagnose_every: u64,
}

impl RunConfig {
    /// A run with seed 0 that is evaluated at its end, and checks every 100 steps that all ranks
    /// hold the same parameters.
    pub fn new(
        settings: TrainingSettings,
        data: Arc<Dataset>,
        compressor: CompressionSchedule,
    ) -> Self {
        let (evaluate_every, check_every, diagnose_every) = (0, 100, 0);
        Self { settings, data, compressor, seed: 0, evaluate_every, check_every, diagnose_every }
    }

    /// The same run after `change`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The settings, with the defaults that depend on the data.
    pub fn resolved(&self) -> TrainingSettings {
        TrainingSettings { augment: Some(self.augments()), ..self.settings.clone() }
    }

    /// Whether training images are cropped, flipped or shifted; by default, colour images of
    /// gradwire's own models are.
    pub(crate) fn augments(&self) -> bool {
        let in_colour = || {
            let images = self.data.images().filter(|_| self.model.own().is_some());
            let shape = images.map(|images| images.train.shape());
            shape.is_some_and(|shape| shape[0] == 3 && can_move(shape))
        };
        self.settings.augment.unwrap_or_else(in_colour)
    }

    /// The error of this run if it diverged because of `what`.
    pub(crate) fn diverged(&self, what: String) -> TrainError {
        TrainError::diverged(what, &self.settings, &self.compressor)
    }

    /// How long a rank waits for another. It must be longer than an evaluation, because servers
    /// wait for evaluations. A rank that dies is noticed at once.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.settings.deadline_s)
    }

    /// How many workers take part in each round.
    pub(crate) fn participants(&self) -> usize {
        ((self.participation * self.workers as f64).round() as usize).clamp(1, self.workers)
    }

    /// The number of backup workers.
    pub(crate) fn backups(&self) -> usize {
        match self.exchange {
            Exchange::ParameterServer { backups, .. } => backups,
            _ => 0,
        }
    }

    /// Whether a stopped and resumed run gives the bits of an uninterrupted run: false if workers
    /// do not wait for each other.
    pub fn resumes_exactly(&self) -> bool {
        self.exchange.keeps_replicas_identical() && self.backups() == 0
    }

    /// Sixteen hexadecimal digits that differ between runs with different settings, data or
    /// versions of gradwire.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::digest(self.text_for_ranks());
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The names and values that a resumed run must repeat.
    pub(crate) fn facts_of_result(&self) -> Vec<(String, String)> {
        let mut facts = self.facts_beside_settings();
        let settings = self.resolved();
        let counts = SETTINGS.iter().filter(|setting| !WITHOUT_EFFECT.contains(&setting.name));
        facts.extend(counts.map(|setting| (setting.title(), setting.text(&settings))));
        facts
    }

    /// The names and values that must be equal on all ranks.
    fn facts_of_ranks(&self) -> Vec<(String, String)> {
        let mut facts = self.facts_beside_settings();
        let settings = self.resolved();
        facts.extend(SETTINGS.iter().map(|setting| (setting.title(), setting.text(&settings))));
        let every = [
            ("evaluate every", self.evaluate_every),
            ("diagnose every", self.diagnose_every),
            ("check every", self.check_every),
        ];
        facts.extend(every.map(|(name, steps)| (name.to_owned(), steps.to_string())));
        facts
    }

    /// The names and values that must be equal on all ranks, and the version of gradwire, a line
    /// for each.
    pub(crate) fn text_for_ranks(&self) -> String {
        let line = |(name, value): (String, String)| format!("{name} {value}\n");
        let version = format!("gradwire {}\n", env!("CARGO_PKG_VERSION"));
        version + &self.facts_of_ranks().into_iter().map(line).collect::<String>()
    }

    fn facts_beside_settings(&self) -> Vec<(String, String)> {
        let facts = [
            ("data", self.data.name.clone()),
            ("data checksum", self.data.checksum.clone()),
            ("compressor", self.compressor.to_string()),
            ("seed", self.seed.to_string()),
        ];
        facts.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

/// Settings that change no parameter, so a resumed run may have others.
const WITHOUT_EFFECT: [&str; 5] =
    ["overlap", "straggler", "evaluate_at_most", "min_workers", "deadline_s"];

impl Deref for RunConfig {
    type Target = TrainingSettings;

    fn deref(&self) -> &TrainingSettings {
        &self.settings
    }
}

impl DerefMut for RunConfig {
    fn deref_mut(&mut self) -> &mut TrainingSettings {
        &mut self.settings
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn remedies_are_settings_that_the_run_can_change() {
        let remedy = |compressor: &str, change: fn(&mut TrainingSettings)| {
            let mut settings = TrainingSettings::default();
            change(&mut settings);
            let compressor = compressor.parse().unwrap();
            TrainError::diverged("NaN", &settings, &compressor).to_string()
        };
        let expected = "NaN: the run diverged; lower the learning rate (--lr), or begin with a warm-up \
                        (warmup=0.05 in --lr), or clip gradients (--clip)";
        assert_eq!(remedy("none", |_| {}), expected);
        assert_eq!(remedy("eden", |_| {}), format!("{expected}, or compress less"));
        let longer = expected.replace("0.05", "0.5");
        assert_eq!(remedy("topk", |_| {}), format!("{longer}, or compress less"));
        assert!(remedy("adaptive:ef=on", |_| {}).ends_with("or compress less, or remove ef=on"));
        let few = remedy("none", |settings| {
            settings.clip = Some(1.0);
            settings.learning_rate = "cosine:from=0.1,to=0.001,warmup=0.1".parse().unwrap();
        });
        assert_eq!(few, "NaN: the run diverged; lower the learning rate (--lr)");
    }

    /// The names and texts are part of the format of checkpoints.
    #[test]
    fn checkpoints_have_each_setting_that_affects_the_result() {
        let settings = TrainingSettings {
            model: "mlp".parse().unwrap(),
            raw_names: vec!["conv".to_owned(), "norm".to_owned()],
            rules: ["*.bias -> fp16", "<1000 -> none"].map(|rule| rule.parse().unwrap()).to_vec(),
            ..TrainingSettings::default()
        };
        let data = Arc::new(gradwire_models::data::embedded_sized(1, 20, 10));
        let config = RunConfig::new(settings, Arc::clone(&data), "3lc".parse().unwrap());
        let found: BTreeMap<String, String> = config.facts_of_result().into_iter().collect();
        let expected = [
            ("model", "mlp"),
            ("data", &data.name),
            ("data checksum", &data.checksum),
            ("compressor", "3lc"),
            ("send", "gradients"),
            ("outer", "off"),
            ("outer rate", "1"),
            ("median clip", "false"),
            ("split", "shared"),
            ("participation", "1"),
            ("dropout", "0"),
            ("mask", "true"),
            ("exchange", "server"),
            ("workers", "4"),
            ("steps", "600"),
            ("batch", "32"),
            ("optimizer", "momentum"),
            ("weight decay", "0.0001"),
            ("l1", "0"),
            ("svrg", "0"),
            ("clip", "off"),
            ("learning rate", "cosine:from=0.01,to=0.0001"),
            ("augment", "false"),
            ("seed", "0"),
            ("rules", "*.bias -> fp16, <1000 -> none"),
            ("raw vectors", "true"),
            ("raw below", "256"),
            ("raw names", "conv norm"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(found, BTreeMap::from(expected));
    }
}
