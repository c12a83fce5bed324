//! What the AdaComp paper reports, and its experiments.

use gradwire_train::RunRecord;

use crate::experiment::{Experiment, known};
use crate::table::Grid;

/// The paper in a line.
pub(super) const CITATION: &str = "C.-Y. Chen, J. Choi, D. Brand, A. Agrawal, W. Zhang, K. Gopalakrishnan: AdaComp: \
     Adaptive Residual Gradient Compression for Data-Parallel Distributed Training. AAAI 2018";

/// A column of Table 2, which is a row here.
pub(super) struct Row {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// The paper's error of the baseline, and of AdaComp, 0 to 1; `None` where it gives none.
    pub(super) errors: [Option<f64>; 2],
    /// Model, data, mini-batch of all learners, epochs and learners of the paper.
    paper: [&'static str; 5],
    model: &'static str,
    data: &'static str,
    batch: usize,
    epochs: f64,
    learning_rate: &'static str,
    optimizer: &'static str,
}

/// The rows of Table 2 whose data can be had.
pub(super) const ROWS: [Row; 4] = [
    Row {
        name: "mnist-cnn",
        errors: [Some(0.0088), Some(0.0085)],
        paper: ["2 convolutions, 2 fully connected, 1.7 MB", "MNIST", "100", "100", "8"],
        model: "lenet5:relu",
        data: "mnist",
        batch: 12,
        epochs: 100.0,
        learning_rate: "cosine:from=0.005",
        optimizer: "momentum",
    },
    CIFAR_CNN,
    Row {
        // A generated task stands for the paper's data.
        name: "bn50-dnn",
        errors: [Some(0.598), Some(0.598)],
        paper: ["6 fully connected, 43 MB", "BN50", "256", "13", "8"],
        model: "mlp:1024-1024-1024-1024-1024",
        data: "frames",
        batch: 32,
        epochs: 13.0,
        learning_rate: "cosine:from=0.05",
        optimizer: "momentum",
    },
    Row {
        name: "lstm",
        errors: [None, None],
        paper: ["2 layers of 512, 13 MB", "Shakespeare", "10", "45", "8"],
        model: "charlstm:512",
        data: "tinyshakespeare",
        batch: 1,
        epochs: 45.0,
        learning_rate: "cosine:from=0.002",
        optimizer: "adam",
    },
];

/// The row that the figures are of.
pub(super) const CIFAR_CNN: Row = Row {
    name: "cifar-cnn",
    errors: [Some(0.18), Some(0.184)],
    paper: ["3 convolutions, 1 fully connected, 0.3 MB", "CIFAR-10", "128", "140", "128"],
    model: "cifar-cnn",
    data: "cifar10-jpg",
    batch: 16,
    epochs: 140.0,
    learning_rate: "cosine:from=0.02",
    optimizer: "momentum",
};

impl Row {
    /// Eight learners with a mini-batch as near to the paper's as they can share. The paper does not give
    /// its learning rates.
    pub(super) fn experiment(&self) -> Experiment {
        Experiment::default().suiting(known(self.model)).with(|e| {
            e.data = self.data.to_owned();
            e.exchange = known("all-gather");
            e.workers = 8;
            e.batch = self.batch;
            e.epochs = Some(self.epochs);
            e.optimizer = known(self.optimizer);
            e.learning_rate = known(self.learning_rate);
            e.weight_decay = 0.0;
            e.raw_vectors = false;
            e.raw_below = 0;
            e.evaluate_at_most = 10_000;
            e.links_mbit = vec![10.0, 100.0, 1000.0];
            e.diagnose = true;
        })
    }

    /// The paper's set-up beside the one of the runs, which have one shape: mini-batch and number of learners.
    pub(super) fn setup(&self, run: &RunRecord, seeds: usize) -> Grid {
        let [_, _, batch, _, learners] = self.paper;
        let batches = (run.batch * run.workers).to_string();
        let shape = [
            ["mini-batch of all learners".to_owned(), batch.to_owned(), batches],
            ["learners".to_owned(), learners.to_owned(), run.workers.to_string()],
        ];
        self.setup_with(run, seeds, shape, [])
    }

    /// The same with other lines on the shape of runs, and on what is compressed.
    pub(super) fn setup_with(
        &self,
        run: &RunRecord,
        seeds: usize,
        shape: impl IntoIterator<Item = [String; 3]>,
        compression: impl IntoIterator<Item = [String; 3]>,
    ) -> Grid {
        let [model, data, _, epochs, _] = self.paper;
        let line =
            |what: &str, paper: &str, here: String| [what.to_owned(), paper.to_owned(), here];
        let mut lines = vec![
            line("model", model, format!("{}, {} parameters", run.model, run.parameters)),
            line("data", data, run.data.clone()),
        ];
        lines.extend(shape);
        lines.push(line("length", &format!("{epochs} epochs"), format!("{} steps", run.steps)));
        lines.extend(compression);
        let counted = "counted: messages by layer, all at the transport".to_owned();
        lines.extend([
            line("optimizer", "momentum 0.9, or Adam", run.optimizer.to_string()),
            line("learning rate", "not said", run.learning_rate.to_string()),
            line("seeds", "not said", seeds.to_string()),
            line("bytes", "8 or 16 bits an element sent", counted),
        ]);
        let mut grid = Grid::new(["", "paper", "here"]);
        lines.into_iter().for_each(|cells| grid.push(cells.to_vec()));
        grid.left_aligned()
    }
}
