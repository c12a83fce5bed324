//! An experiment: one model and data set, several compressors and seeds.

mod check;
mod runs;
mod text;

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use gradwire_exchange::{Exchange, Policy, Rule};
use gradwire_models::Split;
use gradwire_models::models::{ModelKind, Task};
use gradwire_models::optim::OptimizerKind;
use gradwire_models::schedule::LearningRate;
use gradwire_train::plan::Plan;
use gradwire_train::run::{Payload, Straggler};
use serde::{Deserialize, Serialize};

use crate::TestbedError;

/// An experiment, as a TOML file or the command line describes it. What is not given has the
/// default of [`Experiment::default`], the comparison that `gradwire compare` runs on its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Experiment {
    /// The model.
    #[serde(with = "text")]
    pub model: ModelKind,
    /// A data set's name (`digits` is generated) or the folder that holds its files.
    pub data: String,
    /// The compressors to compare.
    #[serde(with = "text::list")]
    pub compressors: Vec<Plan>,
    /// What workers send: gradients, or the updates of optimizers of their own.
    #[serde(with = "text")]
    pub send: Payload,
    /// How the training set is split among workers.
    #[serde(with = "text")]
    pub split: Split,
    /// The part of the workers that takes part in each round.
    pub participation: f64,
    /// The probability with which one of those fails to deliver.
    pub dropout: f64,
    /// Whether workers with optimizers of their own forget the momentum of what they have sent.
    pub mask: bool,
    /// Whether gradients of the last layers are exchanged while those of the first are still being computed.
    #[serde(skip_serializing_if = "is_off")]
    pub overlap: bool,
    /// How workers exchange tensors.
    #[serde(with = "text")]
    pub exchange: Exchange,
    /// Number of workers.
    pub workers: usize,
    /// Training steps of each run; used where `epochs` is not given.
    pub steps: u64,
    /// Passes over the training set, instead of `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Images, or streams of text, per worker and step.
    pub batch: usize,
    /// The update rule.
    #[serde(with = "text")]
    pub optimizer: OptimizerKind,
    /// The learning rate over steps.
    #[serde(with = "text")]
    pub learning_rate: LearningRate,
    /// Weight of the ℓ2 penalty.
    pub weight_decay: f32,
    /// Weight of the ℓ1 penalty.
    pub l1: f32,
    /// Steps between snapshots of variance-reduced gradients; 0 for plain ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub svrg: u64,
    /// A worker and the seconds that it is held up in every step, such as `3=0.2`.
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    pub straggler: Option<Straggler>,
    /// The most that the norm of a worker's gradient may be; longer ones are scaled down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f32>,
    /// Random crops and flips; where not given, colour images are cropped and flipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub augment: Option<bool>,
    /// Compressors of certain tensors: `*.bias -> fp16`, `<1000 -> none`, `matrices -> powersgd`. The first rule that
    /// is for a tensor counts, before what follows.
    #[serde(with = "text::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Whether tensors of one dimension or none, biases and the scales of norms, travel uncompressed.
    pub raw_vectors: bool,
    /// Tensors with fewer elements travel uncompressed.
    pub raw_below: usize,
    /// Tensors whose name contains one of these words travel uncompressed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raw_names: Vec<String>,
    /// One run for each compressor and seed.
    pub seeds: Vec<u64>,
    /// Evaluations during a run, the last step's included.
    pub evaluations: u64,
    /// The most test examples that evaluations before the last look at.
    pub evaluate_at_most: usize,
    /// Whether the first worker's gradients and residuals are looked at, some fifty times a run.
    pub diagnose: bool,
    /// Seconds that a rank waits for another before it gives it up for lost.
    #[serde(skip_serializing_if = "is_the_usual")]
    pub deadline_s: f64,
    /// Bandwidths that step times are modelled for, in Mbit/s.
    pub links_mbit: Vec<f64>,
    /// Modelled latency of a message, in milliseconds.
    pub latency_ms: f64,
}

fn is_the_usual(deadline: &f64) -> bool {
    *deadline == DEADLINE
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_off(switch: &bool) -> bool {
    !switch
}

impl Default for Experiment {
    fn default() -> Self {
        let specs = [
            "none",
            "int8",
            "terngrad:clip=0",
            "onebit",
            "topk:ratio=0.05,select=sampled",
            "3lc",
            "3lc:s=1.75",
        ];
        Self {
            model: known("lenet5"),
            data: "digits".to_owned(),
            compressors: specs.map(known).to_vec(),
            send: Payload::default(),
            split: Split::default(),
            participation: 1.0,
            dropout: 0.0,
            mask: true,
            overlap: false,
            exchange: Exchange::default(),
            workers: 4,
            steps: 600,
            epochs: None,
            batch: 32,
            optimizer: known("momentum"),
            learning_rate: Self::learning_rate_for(known("lenet5")),
            weight_decay: 1e-4,
            l1: 0.0,
            svrg: 0,
            straggler: None,
            clip: None,
            augment: None,
            rules: Vec::new(),
            raw_vectors: true,
            raw_below: Policy::RAW_BELOW,
            raw_names: Vec::new(),
            seeds: vec![0],
            evaluations: 10,
            evaluate_at_most: 1000,
            diagnose: false,
            deadline_s: DEADLINE,
            links_mbit: vec![10.0, 100.0, 1_000.0, 10_000.0],
            latency_ms: 0.0,
        }
    }
}

impl Experiment {
    /// A schedule for a model: models with batch normalisation take the 3LC paper's, scaled by the number of workers
    /// and warmed up; models without batch normalisation a smaller one. Language models fall in steps, as in Sattler et
    /// al., Table III.
    pub fn learning_rate_for(model: ModelKind) -> LearningRate {
        match model {
            ModelKind::ResNet { .. }
            | ModelKind::ResNet9
            | ModelKind::DenseNet40
            | ModelKind::ResNet18
            | ModelKind::ResNet50 => known("cosine:from=0.1,to=0.001,scale=on,warmup=0.05"),
            ModelKind::CharLstm { .. } => {
                known("step:from=1,factor=0.8,at=0.3125+0.5+0.625+0.75+0.875")
            }
            ModelKind::WordLstm => known("step:from=1,factor=0.8,after=0.4,every=0.02"),
            ModelKind::Mlp { .. }
            | ModelKind::LeNet5 { .. }
            | ModelKind::CifarCnn
            | ModelKind::Vgg16
            | ModelKind::Vgg19
            | ModelKind::AlexNet
            | ModelKind::UNet { .. } => known("cosine:from=0.01,to=0.0001"),
            ModelKind::Ncf => known("0.001"),
        }
    }

    /// The same experiment with another model and the settings that suit it. Language models are trained as in the
    /// paper on sparse binary compression (Sattler et al., arXiv:1805.08768, Table III): plain descent at a rate that
    /// begins with 1, five streams a worker, gradients of a norm of 5 at most, no penalty. The model of ratings is
    /// trained by Adam, as He et al. do ("Neural collaborative filtering", WWW 2017), on 64 ratings a worker and step
    /// with four pairs not taken for each. Models of images keep all settings but the learning rate.
    pub fn suiting(self, model: ModelKind) -> Self {
        let learning_rate = Self::learning_rate_for(model);
        match model.task() {
            Task::Images | Task::Masks => return Self { model, learning_rate, ..self },
            Task::Ratings => {
                let optimizer = known("adam");
                return Self {
                    model,
                    learning_rate,
                    optimizer,
                    batch: 64,
                    weight_decay: 0.0,
                    ..self
                };
            }
            Task::Text => {}
        }
        Self {
            model,
            learning_rate,
            batch: 5,
            optimizer: known("sgd"),
            weight_decay: 0.0,
            clip: Some(5.0),
            evaluate_at_most: 20_000,
            ..self
        }
    }

    /// The same experiment after `change`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Reads an experiment file.
    pub fn read(path: &Path) -> Result<Self, TestbedError> {
        let text = std::fs::read_to_string(path).map_err(TestbedError::read(path))?;
        toml::from_str(&text).map_err(|error| TestbedError::Experiment {
            path: path.to_owned(),
            message: error.to_string(),
        })
    }

    /// The experiment as a file that [`read`](Self::read) takes, every setting written out.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment is a table of plain values")
    }
}

/// Seconds that a rank waits for another: no step of the models here takes nearly as long.
const DEADLINE: f64 = 300.0;
/// A value this crate itself writes as text.
pub(crate) fn known<T: FromStr<Err: Display>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error: T::Err| panic!("'{text}': {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Experiment, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experiment.toml");
        std::fs::write(&path, text).unwrap();
        Experiment::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn an_experiment_goes_through_toml_and_back() {
        let mut experiment = Experiment::default();
        assert_eq!(read(&experiment.to_toml()).unwrap(), experiment);
        experiment.epochs = Some(1.5);
        experiment.overlap = true;
        experiment.augment = Some(false);
        experiment.clip = Some(2.5);
        experiment.seeds = vec![1, 2];
        assert_eq!(read(&experiment.to_toml()).unwrap(), experiment);
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let experiment =
            read("model = \"resnet20\"\ncompressors = [\"none\", \"3lc:s=1.9\"]").unwrap();
        assert_eq!(experiment.model.to_string(), "resnet20");
        assert_eq!(experiment.compressors[1].to_string(), "3lc:s=1.9");
        assert_eq!(experiment.workers, Experiment::default().workers);
    }

    #[test]
    fn the_experiments_of_this_repository_are_experiments() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(!files.is_empty());
        for file in files {
            Experiment::read(&file).unwrap().check().unwrap();
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        for (text, says) in [
            ("compressors = [\"4lc\"]", "unknown compressor '4lc'"),
            ("compressors = [\"3lc:s=2\"]", "s=2 is not allowed"),
            ("model = \"vgg\"", "vgg"),
            ("exchange = \"ring\"", "ring"),
            ("steeps = 3", "steeps"),
            ("steps = \"many\"", "steps"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(error.contains("experiment.toml"), "{error}");
        }
    }

    #[test]
    fn language_models_have_settings_of_their_own() {
        let experiment = Experiment::default().suiting(known("wordlstm"));
        assert!(experiment.check().is_ok());
        assert_eq!((experiment.batch, experiment.clip), (5, Some(5.0)));
        // 0.8 at iteration 24000 + 1200·n of 60000.
        let rate = |step| experiment.learning_rate.at(step, 60_000, 4);
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9);
        near(rate(23_999), 1.0);
        near(rate(24_000), 0.8);
        near(rate(25_199), 0.8);
        near(rate(25_200), 0.64);
        near(rate(59_999), 0.8f64.powi(30));
        let rate = Experiment::learning_rate_for(known("charlstm:64"));
        let falls: Vec<u64> =
            (1..16_000).filter(|&s| rate.at(s, 16_000, 4) < rate.at(s - 1, 16_000, 4)).collect();
        assert_eq!(falls, [5_000, 8_000, 10_000, 12_000, 14_000]);
    }
}
