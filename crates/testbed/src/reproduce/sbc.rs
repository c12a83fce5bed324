//! What the SBC paper reports, and its experiments at their own hyperparameters: F. Sattler,
//! S. Wiedemann, K.-R. Müller, W. Samek, "Sparse Binary Compression: Towards Distributed Deep Learning
//! with minimal Communication", arXiv:1805.08768, 2018.

use std::fmt;
use std::str::FromStr;

use gradwire_models::Split;
use gradwire_train::plan::Plan;
use gradwire_train::run::{Metric, Payload, RunRecord};

use crate::experiment::Experiment;
use crate::format::times;
use crate::plot::HeatMap;
use crate::summary::Summary;
use crate::table::{Grid, quality};

/// The paper in a line.
pub const CITATION: &str = "F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek: Sparse Binary \
     Compression: Towards Distributed Deep Learning with minimal Communication. arXiv:1805.08768, \
     2018";

/// A row of Table II, less ResNet-50 on ImageNet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Row {
    /// LeNet5-Caffe on MNIST.
    #[default]
    LeNet,
    /// ResNet-32 on CIFAR-10.
    ResNet32,
    /// WordLSTM on the Penn Treebank.
    WordLstm,
    /// CharLSTM on Shakespeare.
    CharLstm,
}

/// The figures of a row, method by method in the order of [`METHODS`], and its column of Table III.
struct Figures {
    name: &'static str,
    model: &'static str,
    data: &'static str,
    metric: Metric,
    quality: [f64; 6],
    ratio: [f64; 6],
    iterations: u64,
    optimizer: &'static str,
    batch: usize,
    learning_rate: &'static str,
    /// The delay of Federated Averaging, which is its ratio.
    delay: u64,
}

/// The methods of Table II.
pub const METHODS: [&str; 6] =
    ["Baseline", "Gradient Dropping", "Federated Averaging", "SBC (1)", "SBC (2)", "SBC (3)"];

const LENET: Figures = Figures {
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
};

const RESNET32: Figures = Figures {
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
};

const WORDLSTM: Figures = Figures {
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
};

const CHARLSTM: Figures = Figures {
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
};

impl Row {
    /// All rows.
    pub const ALL: [Self; 4] = [Self::LeNet, Self::ResNet32, Self::WordLstm, Self::CharLstm];

    fn figures(self) -> &'static Figures {
        match self {
            Self::LeNet => &LENET,
            Self::ResNet32 => &RESNET32,
            Self::WordLstm => &WORDLSTM,
            Self::CharLstm => &CHARLSTM,
        }
    }

    /// The specs of the six methods.
    pub fn compressors(self) -> [String; 6] {
        let delay = self.figures().delay;
        [
            "none".to_owned(),
            "gradient-dropping".to_owned(),
            format!("none:every={delay}"),
            "sbc1".to_owned(),
            "sbc2".to_owned(),
            "sbc3".to_owned(),
        ]
    }

    /// The paper's experiment: 4 clients with equal shares of the training set, Table III's
    /// hyperparameters, all methods by Algorithm 1 with local optimizers. All tensors travel
    /// compressed, and every client gets every message.
    pub fn experiment(self) -> Experiment {
        let figures = self.figures();
        let model = known(figures.model);
        Experiment {
            data: figures.data.to_owned(),
            compressors: self.compressors().iter().map(|text| known(text)).collect(),
            send: Payload::Updates,
            split: match figures.metric {
                Metric::Accuracy | Metric::Iou | Metric::HitRate => Split::Shards { sizes: None },
                // A text is cut in equal parts as it is.
                Metric::Perplexity => Split::Shared,
            },
            exchange: known("all-gather"),
            workers: 4,
            steps: figures.iterations,
            batch: figures.batch,
            optimizer: known(figures.optimizer),
            learning_rate: known(figures.learning_rate),
            weight_decay: if self == Self::ResNet32 { 1e-4 } else { 0.0 },
            raw_vectors: false,
            raw_below: 0,
            evaluate_at_most: 10_000,
            links_mbit: vec![10.0, 100.0, 1000.0],
            ..Experiment::default().suiting(model)
        }
    }

    /// Table II's row: the paper's figures, then ours. The ratio is upstream, to the baseline.
    pub fn table(self, summary: &Summary) -> Grid {
        let figures = self.figures();
        let metric = figures.metric;
        let head = ["method", "compressor"].map(str::to_owned).into_iter().chain([
            format!("{}: paper", metric.name()),
            "measured".to_owned(),
            "ratio upstream: paper".to_owned(),
            "measured".to_owned(),
        ]);
        let mut grid = Grid::new(head);
        for (at, (method, compressor)) in METHODS.into_iter().zip(self.compressors()).enumerate() {
            let compressor = known::<Plan>(&compressor).to_string();
            let row = summary.rows.iter().find(|row| row.compressor == compressor);
            let measured = |cell: &dyn Fn(&crate::summary::Row) -> String| {
                row.map_or_else(|| "–".to_owned(), cell)
            };
            grid.push(vec![
                method.to_owned(),
                compressor.clone(),
                metric.show(figures.quality[at]),
                measured(&|row| quality(metric, &row.quality)),
                times(figures.ratio[at]),
                measured(&|row| times(row.ratio_up)),
            ]);
        }
        grid
    }

    /// The paper's set-up beside the one of the runs.
    pub fn setup(self, experiment: &Experiment, run: &RunRecord) -> Grid {
        let figures = self.figures();
        let mut grid = Grid::new(["", "paper", "here"]);
        let mut row = |what: &str, paper: String, here: String| {
            grid.push(vec![what.to_owned(), paper, here]);
        };
        row(
            "model",
            figures.model.to_owned(),
            format!("{}, {} parameters", run.model, run.parameters),
        );
        row("data", figures.data.to_owned(), run.data.clone());
        row("iterations", figures.iterations.to_string(), run.steps.to_string());
        row("clients", "4".to_owned(), run.workers.to_string());
        row("batch", figures.batch.to_string(), run.batch.to_string());
        row("optimizer", figures.optimizer.to_owned(), run.optimizer.clone());
        row("learning rate", figures.learning_rate.to_owned(), run.learning_rate.clone());
        let augmented = match (run.augment, figures.metric) {
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

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.figures().name)
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|row| row.figures().name == text).ok_or_else(|| {
            let known: Vec<String> = Self::ALL.iter().map(Row::to_string).collect();
            format!("unknown row '{text}'; known ones: {}", known.join(", "))
        })
    }
}

/// The sparsities and delays of the grid of Figures 3 and 9.
const SPARSITIES: [f64; 4] = [1.0, 0.1, 0.01, 0.001];
const DELAYS: [u64; 4] = [1, 10, 100, 1000];

/// A cell of the grid. Without gradient sparsity nothing is binarized either.
fn cell(p: f64, every: u64) -> Plan {
    let spec = if p == 1.0 { "none".to_owned() } else { format!("sbc:p={p}") };
    let separator = if p == 1.0 { ':' } else { ',' };
    known(&if every == 1 { spec } else { format!("{spec}{separator}every={every}") })
}

/// All cells whose delay is shorter than a run, the baseline first.
pub fn grid_compressors(steps: u64) -> Vec<Plan> {
    let delays = || DELAYS.into_iter().filter(move |&every| every < steps.max(2));
    SPARSITIES.into_iter().flat_map(|p| delays().map(move |every| cell(p, every))).collect()
}

/// The error, or perplexity, after training over temporal and gradient sparsity, as a heat map. On a
/// diagonal the total sparsity is the same.
pub fn heat_map(summary: &Summary) -> HeatMap {
    let metric = summary.metric;
    let value = |p: f64, every: u64| {
        let compressor = cell(p, every).to_string();
        let row = summary.rows.iter().find(|row| row.compressor == compressor)?;
        Some(match metric {
            Metric::Accuracy | Metric::Iou | Metric::HitRate => 1.0 - row.quality.mean,
            Metric::Perplexity => row.quality.mean,
        })
    };
    let (title, show): (_, fn(f64) -> String) = match metric {
        Metric::Accuracy | Metric::Iou | Metric::HitRate => {
            ("Test error", |error| format!("{:.2} %", error * 100.0))
        }
        Metric::Perplexity => ("Perplexity", |perplexity| format!("{perplexity:.2}")),
    };
    HeatMap {
        title: format!("{title} by temporal and gradient sparsity"),
        columns: (
            "one exchange in so many iterations".to_owned(),
            DELAYS.iter().map(u64::to_string).collect(),
        ),
        rows: ("elements sent".to_owned(), SPARSITIES.iter().map(f64::to_string).collect()),
        values: SPARSITIES
            .iter()
            .map(|&p| DELAYS.iter().map(|&every| value(p, every)).collect())
            .collect(),
        show,
    }
}

pub(super) fn known<T: FromStr<Err: fmt::Display>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error: T::Err| panic!("'{text}': {error}"))
}

#[cfg(test)]
mod tests {
    use gradwire_models::TaskKind;

    use super::*;

    #[test]
    fn rows_are_experiments() {
        for row in Row::ALL {
            let experiment = row.experiment();
            experiment.check().unwrap();
            assert_eq!(experiment.compressors.len(), METHODS.len());
            assert_eq!(row.to_string().parse(), Ok(row));
            assert_eq!(
                experiment.model.task() == TaskKind::Text,
                row.figures().metric == Metric::Perplexity
            );
        }
        assert!("vgg".parse::<Row>().unwrap_err().contains("charlstm"));
    }

    #[test]
    fn the_paper_compresses_by_what_its_table_1_says() {
        // Federated Averaging sends everything, once in so many iterations.
        for row in Row::ALL {
            let figures = row.figures();
            assert_eq!(figures.ratio[2], figures.delay as f64);
        }
    }

    #[test]
    fn the_grid_has_a_cell_for_each_pair_that_fits() {
        let names: Vec<String> = grid_compressors(100).iter().map(Plan::to_string).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[..2], ["none", "none:every=10"]);
        assert_eq!(names[7], "sbc:p=0.001,every=10");
        assert_eq!(grid_compressors(2000).len(), 16);
    }
}
