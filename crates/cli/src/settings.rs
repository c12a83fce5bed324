//! The settings of training that several verbs share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gradwire_exchange::{Exchange, Rule};
use gradwire_models::Split;
use gradwire_models::models::ModelKind;
use gradwire_models::optim::OptimizerKind;
use gradwire_models::schedule::LearningRate;
use gradwire_testbed::experiment::Experiment;
use gradwire_train::plan::Plan;
use gradwire_train::run::{Payload, Straggler};

use crate::failure::Failure;

/// What is not given comes from the experiment file, else from the defaults.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct Settings {
    /// Take settings from a TOML file; flags given beside it win
    #[arg(long, value_name = "FILE")]
    pub(crate) experiment: Option<PathBuf>,
    /// The model: mlp (mlp:392-50,tanh with such hidden layers), lenet5, lenet5:relu, cifar-cnn, resnet20
    /// (or any 6n+2), resnet9, densenet40, vgg16 for images; alexnet, resnet18, resnet50, vgg19 for those
    /// of ImageNet's size; unet (unet:N with N channels in its narrowest layer) for images with masks;
    /// charlstm (charlstm:N with N hidden units), wordlstm for text; ncf for ratings [default: lenet5]
    #[arg(long)]
    model: Option<ModelKind>,
    /// A folder with MNIST, CIFAR-10, class folders of images, text or MovieLens' ratings, or the name of a known data
    /// set [default: digits, which is generated]
    #[arg(long, value_name = "DIR|NAME")]
    data: Option<String>,
    /// Number of workers [default: 4; under mpirun, the processes that are no servers]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
    #[arg(long, value_name = "STRATEGY", help = exchange_help())]
    pub(crate) exchange: Option<Exchange>,
    /// What workers send: gradients; updates, the changes of parameters that each brings about with an
    /// optimizer of its own over the local steps of a round; or weights, the parameters themselves, of which
    /// the mean is taken [default: gradients]
    #[arg(long, value_name = "WHAT")]
    send: Option<Payload>,
    /// How the training set is split among workers: shared, shards[:sizes=4+2+1+1],
    /// classes[:per=2], dirichlet[:alpha=0.5] [default: shared]
    #[arg(long, value_name = "SPLIT")]
    split: Option<Split>,
    /// The part of the workers that takes part in each round [default: 1]
    #[arg(long, value_name = "PART")]
    participation: Option<f64>,
    /// The probability with which a worker fails to deliver in a round [default: 0]
    #[arg(long, value_name = "P")]
    dropout: Option<f64>,
    /// With updates: forget the momentum of what has been sent [default: on]
    #[arg(long, value_name = "on|off")]
    mask: Option<Switch>,
    /// Exchange gradients of the last layers while those of the first are still being computed; reports say how much of
    /// the exchange that hid [default: off]
    #[arg(long, value_name = "on|off")]
    overlap: Option<Switch>,
    /// Training steps [default: 600]
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    pub(crate) steps: Option<u64>,
    /// Passes over the training set, instead of steps
    #[arg(long, value_name = "N")]
    epochs: Option<f64>,
    /// Images, or streams of text, per worker and step [default: 32, 5 for text]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// sgd, momentum[:m=0.9], nesterov[:m=0.9], adam[:beta1=0.9,beta2=0.999], rmsprop[:rho=0.9,m=0],
    /// adagrad [default: momentum, sgd for text]
    #[arg(long, value_name = "NAME")]
    optimizer: Option<OptimizerKind>,
    /// A number, or a schedule such as cosine:from=0.1,to=0.001,scale=on or
    /// step:from=0.1,factor=0.1,at=0.5+0.75 [default: one that suits the model]
    #[arg(long = "lr", value_name = "RATE")]
    learning_rate: Option<LearningRate>,
    /// Weight of the ℓ2 penalty [default: 0.0001, none for text]
    #[arg(long, value_name = "W")]
    weight_decay: Option<f32>,
    /// Weight of the ℓ1 penalty [default: 0]
    #[arg(long, value_name = "W")]
    l1: Option<f32>,
    /// Send how gradients differ from those at a snapshot, renewed every so many steps, whose whole
    /// gradient is shared exactly (SVRG) [default: 0, plain gradients]
    #[arg(long, value_name = "STEPS")]
    svrg: Option<u64>,
    /// Hold a worker up in every step: its number and seconds, such as 3=0.2. How long runs took is in the rows of
    /// --json
    #[arg(long, value_name = "WORKER=SECONDS")]
    straggler: Option<Straggler>,
    /// Scale a worker's gradient down to this norm where it is longer [default: 5 for text, else any
    /// norm will do]
    #[arg(long, value_name = "NORM")]
    clip: Option<f32>,
    /// Random crops and flips of colour training images, shifts of grey ones [default: on for colour
    /// images]
    #[arg(long, value_name = "on|off")]
    augment: Option<Switch>,
    /// A compressor for certain tensors: '*.bias -> fp16', '<1000 -> none', '>=100000 -> powersgd', 'vectors -> none'
    /// (or matrices, convolutions); repeatable, the first that fits counts
    #[arg(long = "rule", value_name = "TENSORS -> SPEC")]
    rules: Vec<Rule>,
    /// Tensors of one dimension or none (biases, the scales of norms) travel uncompressed [default: on]
    #[arg(long, value_name = "on|off")]
    raw_vectors: Option<Switch>,
    /// Tensors with fewer elements travel uncompressed [default: 256]
    #[arg(long, value_name = "N")]
    raw_below: Option<usize>,
    /// Tensors whose name contains this word travel uncompressed; repeatable
    #[arg(long = "raw", value_name = "WORD")]
    raw_names: Vec<String>,
    /// Evaluations on the test set during a run [default: 10]
    #[arg(long, value_name = "N")]
    evaluations: Option<u64>,
    /// Seconds that a rank waits for another before it gives it up for lost; pauses that the others wait out, such as
    /// an evaluation, must fit in [default: 300]
    #[arg(long = "deadline", value_name = "SECONDS")]
    deadline_s: Option<f64>,
    /// Look at the first worker's gradients and residuals some fifty times a run; reports chart them, and a
    /// residual that grows without bound is called out
    #[arg(long)]
    diagnose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Settings {
    /// Whether the setting with this flag was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        match flag {
            "exchange" => self.exchange.is_some(),
            "workers" => self.workers.is_some(),
            "batch" => self.batch.is_some(),
            _ => false,
        }
    }

    /// The experiment these settings describe, on top of the file's or of `base`.
    pub(crate) fn experiment(&self, base: Experiment) -> Result<Experiment, Failure> {
        let mut experiment = match &self.experiment {
            Some(path) => Experiment::read(path)?,
            None => base,
        };
        if let (Some(model), None) = (self.model, &self.experiment) {
            experiment = experiment.suiting(model);
        }
        set(&mut experiment.model, self.model);
        set(&mut experiment.data, self.data.clone());
        set(&mut experiment.workers, self.workers);
        set(&mut experiment.exchange, self.exchange);
        set(&mut experiment.send, self.send);
        set(&mut experiment.split, self.split.clone());
        set(&mut experiment.participation, self.participation);
        set(&mut experiment.dropout, self.dropout);
        if let Some(switch) = self.mask {
            experiment.mask = matches!(switch, Switch::On);
        }
        if let Some(switch) = self.overlap {
            experiment.overlap = matches!(switch, Switch::On);
        }
        set(&mut experiment.batch, self.batch);
        set(&mut experiment.optimizer, self.optimizer);
        set(&mut experiment.learning_rate, self.learning_rate.clone());
        set(&mut experiment.weight_decay, self.weight_decay);
        set(&mut experiment.l1, self.l1);
        set(&mut experiment.svrg, self.svrg);
        experiment.diagnose |= self.diagnose;
        set(&mut experiment.deadline_s, self.deadline_s);
        if self.straggler.is_some() {
            experiment.straggler = self.straggler;
        }
        if self.clip.is_some() {
            experiment.clip = self.clip;
        }
        if !self.rules.is_empty() {
            experiment.rules = self.rules.clone();
        }
        if let Some(switch) = self.raw_vectors {
            experiment.raw_vectors = matches!(switch, Switch::On);
        }
        set(&mut experiment.raw_below, self.raw_below);
        if !self.raw_names.is_empty() {
            experiment.raw_names = self.raw_names.clone();
        }
        set(&mut experiment.evaluations, self.evaluations);
        if let Some(switch) = self.augment {
            experiment.augment = Some(matches!(switch, Switch::On));
        }
        if let Some(steps) = self.steps {
            experiment.steps = steps;
            experiment.epochs = None;
        }
        if self.epochs.is_some() {
            experiment.epochs = self.epochs;
        }
        Ok(experiment)
    }
}

/// Compressors and seeds, for verbs that take several.
#[derive(Debug, Args)]
pub(crate) struct Several {
    /// A compressor such as 3lc:s=1.75 or topk:ratio=0.01,ef=off; repeat it to compare several. A
    /// plan changes it on the way: 'sbc2 until 0.5 then sbc1', 'sbc2 until drop then sbc1', or
    /// 'sbc within 2MB' for a budget of bytes a worker sends
    #[arg(long = "compressor", value_name = "SPEC")]
    compressors: Vec<Plan>,
    /// Seed of weights, data order and draws; repeat it for the spread over seeds [default: 0]
    #[arg(long = "seed", value_name = "S")]
    seeds: Vec<u64>,
    /// Model times for links of so many Mbit/s, instead of 10, 100, 1000 and 10000; repeatable
    #[arg(long = "link", value_name = "MBIT")]
    links_mbit: Vec<f64>,
    /// Modelled latency of a message, in milliseconds [default: 0]
    #[arg(long, value_name = "MS")]
    latency_ms: Option<f64>,
}

impl Several {
    /// Lays what was given over an experiment.
    pub(crate) fn apply(&self, experiment: &mut Experiment) {
        set(&mut experiment.compressors, given(&self.compressors));
        set(&mut experiment.seeds, given(&self.seeds));
        set(&mut experiment.links_mbit, given(&self.links_mbit));
        set(&mut experiment.latency_ms, self.latency_ms);
    }
}

fn exchange_help() -> String {
    format!("How workers exchange tensors: {} [default: server]", Exchange::KNOWN)
}

fn given<T: Clone>(values: &[T]) -> Option<Vec<T>> {
    (!values.is_empty()).then(|| values.to_vec())
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}

/// The command as it was given, quoted for a shell.
pub(crate) fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).map(|word| quoted(&word)).collect();
    format!("gradwire {}", words.join(" "))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("3lc:s=1.75"), "3lc:s=1.75");
        assert_eq!(quoted("my data"), "'my data'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
