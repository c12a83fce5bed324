//! The results that the AdaComp paper reports, and its experiments.

use std::collections::BTreeSet;

use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::reproduce::study::all_gathered;
use crate::summary::seeds_of_each;
use crate::table::Table;

/// The paper in a line.
pub(super) const CITATION: &str = "C.-Y. Chen, J. Choi, D. Brand, A. Agrawal, W. Zhang, K. Gopalakrishnan: AdaComp: \
     Adaptive Residual Gradient Compression for Data-Parallel Distributed Training. AAAI 2018";

/// A column of Table 2, which is a row here.
pub(super) struct Row {
    /// The paper's errors of the baseline and of AdaComp, 0 to 1; `None` if it gives none.
    pub(super) errors: [Option<f64>; 2],
    /// The paper's model, data, mini-batch of all learners, epochs and learners.
    paper: [&'static str; 5],
    /// The model and the data here.
    trains: [&'static str; 2],
    /// The batch of each of eight learners.
    batch: usize,
    epochs: f64,
    /// The optimizer and its learning rate, which the paper does not state.
    optimizer: [&'static str; 2],
}

/// The rows of Table 2 whose data are available.
pub(super) const ROWS: [Row; 4] = [
    Row {
        errors: [Some(0.0088), Some(0.0085)],
        paper: ["2 convolutions, 2 fully connected, 1.7 MB", "MNIST", "100", "100", "8"],
        trains: ["lenet5:relu", "mnist"],
        batch: 12,
        epochs: 100.0,
        optimizer: ["momentum", "cosine:from=0.005"],
    },
    CIFAR_CNN,
    Row {
        errors: [Some(0.598), Some(0.598)],
        paper: ["6 fully connected, 43 MB", "BN50", "256", "13", "8"],
        // A generated task stands for the paper's data.
        trains: ["mlp:1024-1024-1024-1024-1024", "frames"],
        batch: 32,
        epochs: 13.0,
        optimizer: ["momentum", "cosine:from=0.2"],
    },
    Row {
        errors: [None, None],
        paper: ["2 layers of 512, 13 MB", "Shakespeare", "10", "45", "8"],
        trains: ["charlstm:hidden=512,dropout=0,embedding=off", "tinyshakespeare"],
        batch: 1,
        epochs: 45.0,
        optimizer: ["adam", "cosine:from=0.002"],
    },
];

/// Their names on the command line.
pub(super) const NAMES: [&str; 4] = ["mnist-cnn", "cifar-cnn", "bn50-dnn", "lstm"];

/// The row of the figures.
pub(super) const CIFAR_CNN: Row = Row {
    errors: [Some(0.18), Some(0.184)],
    paper: ["3 convolutions, 1 fully connected, 0.3 MB", "CIFAR-10", "128", "140", "128"],
    trains: ["cifar-cnn", "cifar10-jpg"],
    batch: 16,
    epochs: 140.0,
    optimizer: ["momentum", "cosine:from=0.02"],
};

impl Row {
    /// Eight learners, with the mini-batch nearest to the paper's that they can share.
    pub(super) fn experiment(&self) -> Experiment {
        all_gathered(self.trains, self.optimizer).with(|e| {
            e.workers = 8;
            e.batch = self.batch;
            e.epochs = Some(self.epochs);
            e.diagnose = true;
        })
    }

    /// The set-ups of the paper and of the runs. The number of learners and the mini-batch are from
    /// the first run, unless they vary.
    pub(super) fn setup(&self, runs: &[RunRecord], varies: bool) -> Table {
        let ([model, data, batch, epochs, learners], run) = (self.paper, &runs[0]);
        let mut setup = Table::setup("paper");
        setup.line("model", model, format!("{}, {} parameters", run.model, run.parameters));
        setup.line("data", data, &run.data);
        if !varies {
            setup.line("mini-batch of all learners", batch, run.batch * run.workers);
            setup.line("learners", learners, run.workers);
        }
        setup.line("length", format!("{epochs} epochs"), steps(runs));
        if varies {
            let here = "the result of these bins and this fraction for all runs";
            setup.line("compression", "the highest with less than 1 % degradation", here);
        }
        setup.line("optimizer", "momentum 0.9, or Adam", run.optimizer);
        setup.line("learning rate", "not stated", &run.learning_rate);
        setup.line("seeds", "not stated", seeds_of_each(runs));
        let counted = "counted: messages by layer, all at the transport";
        setup.line("bytes", "8 or 16 bits per sent element", counted);
        setup
    }
}

/// The lengths of runs in words: `782 steps`, or `196 to 3125 steps`.
fn steps(runs: &[RunRecord]) -> String {
    let lengths: BTreeSet<u64> = runs.iter().map(|run| run.steps).collect();
    match (lengths.first(), lengths.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most} steps"),
        (least, _) => format!("{} steps", least.unwrap_or(&0)),
    }
}
