//! The results that the SBC paper reports, and its experiments with the paper's hyperparameters.

use gradwire_models::{ModelSpec, Split, TaskKind};
use gradwire_train::{Payload, RunRecord};

use crate::accounting;
use crate::experiment::{Experiment, known};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{all_gathered, schedules};
use crate::summary::seeds_of_each;
use crate::table::Table;

/// The paper in a line.
pub(super) const CITATION: &str = "F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Sparse Binary \
     Compression: Towards Distributed Deep Learning with minimal Communication. arXiv:1805.08768, \
     2018";

/// A row of Table II, with its column of Table III.
pub(super) struct Row {
    /// The model, and the data set.
    trains: [&'static str; 2],
    /// The quality of each of the [`METHODS`].
    pub(super) quality: [f64; 6],
    /// The compression ratio of each of the [`METHODS`]. The ratio of Federated Averaging is its
    /// delay in iterations.
    pub(super) ratio: [f64; 6],
    iterations: u64,
    batch: usize,
    /// The optimizer, and its learning rate.
    optimizer: [&'static str; 2],
    weight_decay: f32,
}

/// The methods of Table II.
pub(super) const METHODS: [&str; 6] =
    ["Baseline", "Gradient Dropping", "Federated Averaging", "SBC (1)", "SBC (2)", "SBC (3)"];

/// The rows of Table II, without ResNet-50 on ImageNet.
pub(super) const ROWS: [Row; 4] = [
    LENET,
    RESNET32,
    // WordLSTM on the Penn Treebank.
    Row {
        trains: ["wordlstm", "ptb"],
        quality: [89.16, 89.39, 88.59, 89.32, 88.47, 89.31],
        ratio: [1.0, 665.0, 1000.0, 2521.0, 3460.0, 34_905.0],
        iterations: 60_000,
        batch: 5,
        optimizer: ["sgd", "step:from=1,factor=0.8,after=0.4,every=0.02"],
        weight_decay: 0.0,
    },
    // CharLSTM on Shakespeare.
    Row {
        trains: ["charlstm", "shakespeare-complete"],
        quality: [3.635, 3.639, 3.904, 3.671, 3.782, 4.072],
        ratio: [1.0, 660.0, 1000.0, 2572.0, 3958.0, 35_201.0],
        iterations: 16_000,
        batch: 5,
        optimizer: ["sgd", "step:from=1,factor=0.8,at=0.3125+0.5+0.625+0.75+0.875"],
        weight_decay: 0.0,
    },
];

/// Their names on the command line.
pub(super) const NAMES: [&str; 4] = ["lenet", "resnet32", "wordlstm", "charlstm"];

/// LeNet5-Caffe on MNIST. The paper calls its network modified, but does not say how. Caffe's
/// network has no rectifiers after its convolutions; with them the baseline is nearer to the
/// paper's.
pub(super) const LENET: Row = Row {
    trains: ["lenet5:relu", "mnist"],
    quality: [0.9946, 0.994, 0.994, 0.994, 0.994, 0.991],
    ratio: [1.0, 634.0, 500.0, 2071.0, 3491.0, 24_935.0],
    iterations: 2000,
    batch: 128,
    optimizer: ["adam", "0.001"],
    weight_decay: 0.0,
};

/// ResNet-32 on CIFAR-10.
pub(super) const RESNET32: Row = Row {
    trains: ["resnet32", "cifar10-jpg"],
    quality: [0.926, 0.927, 0.919, 0.923, 0.919, 0.922],
    ratio: [1.0, 604.0, 1000.0, 1530.0, 3430.0, 32_300.0],
    iterations: 60_000,
    batch: 128,
    optimizer: ["momentum", "step:from=0.01,factor=0.1,at=0.5+0.83333333"],
    weight_decay: 1e-4,
};

impl Row {
    /// The specs of the six methods, as they print.
    pub(super) fn compressors(&self) -> [String; 6] {
        let averaging = format!("none:every={}", self.ratio[2]);
        ["none", "gradient-dropping", &averaging, "sbc1", "sbc2", "sbc3"]
            .map(|spec| known::<gradwire::Spec>(spec).to_string())
    }

    /// The paper's experiment: 4 clients with equal shares of the training set, Table III's
    /// hyperparameters, all methods by Algorithm 1 with local optimizers. All tensors are sent
    /// compressed, and every client receives every message.
    pub(super) fn experiment(&self) -> Experiment {
        all_gathered(self.trains, self.optimizer).with(|e| {
            e.compressors = schedules(self.compressors());
            e.send = Payload::Updates;
            // A text is always divided into equal parts.
            if e.model.learns() != TaskKind::Text {
                e.split = Split::Shards { sizes: None };
            }
            e.workers = 4;
            e.steps = self.iterations;
            e.batch = self.batch;
            e.weight_decay = self.weight_decay;
            // The paper does not mention shifted digits.
            e.augment = (self.trains[1] == "mnist").then_some(false);
        })
    }

    /// The set-ups of the paper and of the runs.
    pub(super) fn setup(&self, runs: &[RunRecord]) -> Table {
        let run = &runs[0];
        let [model, data] = self.trains;
        let [optimizer, learning_rate] = self.optimizer;
        let augmented = match run.augment {
            Some(true) => "yes",
            _ if known::<ModelSpec>(model).learns() == TaskKind::Text => "–",
            _ => "no",
        };
        let mut setup = Table::setup("paper");
        setup.line("model", model, format!("{}, {} parameters", run.model, run.parameters));
        setup.line("data", data, &run.data);
        setup.line("iterations", self.iterations, run.steps);
        setup.line("clients", 4, run.workers);
        setup.line("batch", self.batch, run.batch);
        setup.line("optimizer", optimizer, run.optimizer);
        setup.line("learning rate", learning_rate, &run.learning_rate);
        setup.line("images shifted, or cropped and flipped", "not stated", augmented);
        setup.line("momentum masking", "yes", if run.mask { "yes" } else { "no" });
        setup.line("seeds", "not stated", seeds_of_each(runs));
        setup.line("bytes", "by equation 1", "counted at the transport");
        setup
    }
}

/// Adds a table of the bytes by the paper's equation 1, before the last table.
pub(super) fn add_accounting(findings: &mut Findings, runs: &[RunRecord]) {
    let table = (accounting::HEADING, accounting::table(runs));
    findings.tables.insert(findings.tables.len() - 1, table);
    findings.notes.push(accounting::NOTE.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_experiments() {
        for (row, name) in ROWS.iter().zip(NAMES) {
            let experiment = row.experiment();
            experiment.check().unwrap();
            assert_eq!(experiment.compressors.len(), METHODS.len());
            assert!(row.trains[0].starts_with(name));
            // Perplexities are above 1, accuracies below.
            assert_eq!(experiment.model.learns() == TaskKind::Text, row.quality[0] > 1.0);
        }
    }
}
