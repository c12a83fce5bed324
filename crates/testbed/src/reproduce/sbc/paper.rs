//! What the SBC paper reports, and its experiments with the paper's own hyperparameters.

use gradwire_models::Split;
use gradwire_train::{Metric, Payload, RunRecord};

use crate::accounting;
use crate::experiment::{Experiment, known};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::plans;
use crate::table::Grid;

/// The paper in a line.
pub(super) const CITATION: &str = "F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Sparse Binary \
     Compression: Towards Distributed Deep Learning with minimal Communication. arXiv:1805.08768, \
     2018";

/// A row of Table II, with its column of Table III.
pub(super) struct Row {
    /// Its name on the command line.
    pub(super) name: &'static str,
    model: &'static str,
    data: &'static str,
    /// What its quality is measured in.
    pub(super) metric: Metric,
    /// The quality of each of the [`METHODS`].
    pub(super) quality: [f64; 6],
    /// The compression ratio of each of the [`METHODS`].
    pub(super) ratio: [f64; 6],
    iterations: u64,
    optimizer: &'static str,
    batch: usize,
    learning_rate: &'static str,
    /// The delay of Federated Averaging in iterations, which is its ratio.
    delay: u64,
    weight_decay: f32,
}

/// The methods of Table II.
pub(super) const METHODS: [&str; 6] =
    ["Baseline", "Gradient Dropping", "Federated Averaging", "SBC (1)", "SBC (2)", "SBC (3)"];

/// The rows of Table II, less ResNet-50 on ImageNet.
pub(super) const ROWS: [Row; 4] = [LENET, RESNET32, WORDLSTM, CHARLSTM];

/// LeNet5-Caffe on MNIST.
pub(super) const LENET: Row = Row {
    name: "lenet",
    model: "lenet5",
    data: "mnist",
    metric: Metric::Accuracy,
    quality: [0.9946, 0.994, 0.994, 0.994, 0.994, 0.991],
    ratio: [1.0, 634.0, 500.0, 2071.0, 3491.0, 24_935.0],
    iterations: 2000,
    optimizer: "adam",
    batch: 128,
    learning_rate: "0.001",
    delay: 500,
    weight_decay: 0.0,
};

/// ResNet-32 on CIFAR-10.
pub(super) const RESNET32: Row = Row {
    name: "resnet32",
    model: "resnet32",
    data: "cifar10-jpg",
    metric: Metric::Accuracy,
    quality: [0.926, 0.927, 0.919, 0.923, 0.919, 0.922],
    ratio: [1.0, 604.0, 1000.0, 1530.0, 3430.0, 32_300.0],
    iterations: 60_000,
    optimizer: "momentum",
    batch: 128,
    learning_rate: "step:from=0.01,factor=0.1,at=0.5+0.83333333",
    delay: 1000,
    weight_decay: 1e-4,
};

/// WordLSTM on the Penn Treebank.
const WORDLSTM: Row = Row {
    name: "wordlstm",
    model: "wordlstm",
    data: "ptb",
    metric: Metric::Perplexity,
    quality: [89.16, 89.39, 88.59, 89.32, 88.47, 89.31],
    ratio: [1.0, 665.0, 1000.0, 2521.0, 3460.0, 34_905.0],
    iterations: 60_000,
    optimizer: "sgd",
    batch: 5,
    learning_rate: "step:from=1,factor=0.8,after=0.4,every=0.02",
    delay: 1000,
    weight_decay: 0.0,
};

/// CharLSTM on Shakespeare.
const CHARLSTM: Row = Row {
    name: "charlstm",
    model: "charlstm",
    data: "shakespeare-complete",
    metric: Metric::Perplexity,
    quality: [3.635, 3.639, 3.904, 3.671, 3.782, 4.072],
    ratio: [1.0, 660.0, 1000.0, 2572.0, 3958.0, 35_201.0],
    iterations: 16_000,
    optimizer: "sgd",
    batch: 5,
    learning_rate: "step:from=1,factor=0.8,at=0.3125+0.5+0.625+0.75+0.875",
    delay: 1000,
    weight_decay: 0.0,
};

impl Row {
    /// The specs of the six methods.
    pub(super) fn compressors(&self) -> [String; 6] {
        let averaging = format!("none:every={}", self.delay);
        ["none", "gradient-dropping", &averaging, "sbc1", "sbc2", "sbc3"].map(str::to_owned)
    }

    /// The paper's experiment: 4 clients with equal shares of the training set, Table III's
    /// hyperparameters, all methods by Algorithm 1 with local optimizers. All tensors travel
    /// compressed, and every client gets every message.
    pub(super) fn experiment(&self) -> Experiment {
        Experiment::default().suiting(known(self.model)).with(|e| {
            e.data = self.data.to_owned();
            e.compressors = plans(self.compressors());
            e.send = Payload::Updates;
            // A text is cut in equal parts as it is.
            if self.metric != Metric::Perplexity {
                e.split = Split::Shards { sizes: None };
            }
            e.exchange = known("all-gather");
            e.workers = 4;
            e.steps = self.iterations;
            e.batch = self.batch;
            e.optimizer = known(self.optimizer);
            e.learning_rate = known(self.learning_rate);
            e.weight_decay = self.weight_decay;
            e.raw_vectors = false;
            e.raw_below = 0;
            e.evaluate_at_most = 10_000;
            e.links_mbit = vec![10.0, 100.0, 1000.0];
        })
    }

    /// The paper's set-up beside the one of the runs.
    pub(super) fn setup(&self, experiment: &Experiment, run: &RunRecord) -> Grid {
        let mut grid = Grid::new(["", "paper", "here"]);
        let mut row = |what: &str, paper: String, here: String| {
            grid.push(vec![what.to_owned(), paper, here]);
        };
        let model = format!("{}, {} parameters", run.model, run.parameters);
        row("model", self.model.to_owned(), model);
        row("data", self.data.to_owned(), run.data.clone());
        row("iterations", self.iterations.to_string(), run.steps.to_string());
        row("clients", "4".to_owned(), run.workers.to_string());
        row("batch", self.batch.to_string(), run.batch.to_string());
        row("optimizer", self.optimizer.to_owned(), run.optimizer.to_string());
        row("learning rate", self.learning_rate.to_owned(), run.learning_rate.to_string());
        let augmented = match (run.augment == Some(true), self.metric) {
            (true, _) => "yes",
            (false, Metric::Accuracy | Metric::Iou | Metric::HitRate) => "no",
            (false, Metric::Perplexity) => "–",
        };
        row("images shifted, or cropped and flipped", "not said".to_owned(), augmented.to_owned());
        row("momentum masking", "yes".to_owned(), if run.mask { "yes" } else { "no" }.to_owned());
        row("seeds", "not said".to_owned(), experiment.seeds.len().to_string());
        row("bytes", "by equation 1".to_owned(), "counted at the transport".to_owned());
        grid.left_aligned()
    }
}

/// Adds what the paper's equation 1 makes of the bytes, before the last table.
pub(super) fn add_accounting(findings: &mut Findings, runs: &[RunRecord]) {
    let table = ("Bytes sent, by equation 1 and counted", accounting::table(runs));
    findings.tables.insert(findings.tables.len() - 1, table);
    findings.notes.push(accounting::NOTE.to_owned());
}

#[cfg(test)]
mod tests {
    use gradwire_models::TaskKind;

    use super::*;

    #[test]
    fn rows_are_experiments() {
        for row in ROWS {
            let experiment = row.experiment();
            experiment.check().unwrap();
            assert_eq!(experiment.compressors.len(), METHODS.len());
            assert_eq!(experiment.model.task() == TaskKind::Text, row.metric == Metric::Perplexity);
        }
    }

    #[test]
    fn the_paper_compresses_by_what_its_table_1_says() {
        // Federated Averaging sends everything, once in as many iterations as its delay.
        for row in ROWS {
            assert_eq!(row.ratio[2], row.delay as f64);
        }
    }
}
