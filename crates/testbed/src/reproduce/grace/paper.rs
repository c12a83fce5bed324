//! The results that the survey reports, and its experiments.

use gradwire_exchange::Link;
use gradwire_train::RunRecord;

use crate::experiment::{Experiment, known};
use crate::summary::seeds_of_each;
use crate::table::Table;

/// The paper in a line.
pub(super) const CITATION: &str = "H. Xu, C.-Y. Ho, A. M. Abdelmoniem, A. Dutta, E. H. Bergou, K. Karatsenidis, M. Canini, \
     P. Kalnis: Compressed Communication for Distributed Deep Learning: Survey and Quantitative Evaluation. KAUST, 2020";

/// The methods that the survey evaluates, and the methods of the other papers.
pub(super) const METHODS: [(&str, &str); 25] = [
    ("Baseline", "none"),
    ("8-bit", "8bit"),
    ("1-bit SGD", "onebit"),
    ("SignSGD", "signsgd"),
    ("SIGNUM", "signum"),
    ("QSGD", "qsgd"),
    ("Natural", "natural"),
    ("TernGrad", "terngrad"),
    ("EFsignSGD", "efsignsgd"),
    ("INCEPTIONN", "inceptionn"),
    ("Random-k(0.01)", "randomk"),
    ("Top-k(0.01)", "topk"),
    ("Threshold-v(0.01)", "threshold:v=0.01"),
    ("DGC(0.01)", "dgc:ratio=0.01 from ratio=0.25 over 0.2"),
    ("Adaptive(0.01)", "dryden"),
    ("Wangni et al.(0.01)", "adaptive"),
    ("SketchML", "sketchml"),
    ("Qsparse-local-SGD", "qsparse-local"),
    ("3LC", "3lc"),
    ("PowerSGD", "powersgd"),
    ("GradZip", "gradzip"),
    ("ATOMO", "atomo"),
    ("SBC", "sbc"),
    ("AdaComp", "adacomp"),
    ("int8", "int8"),
];

/// A benchmark of the survey (Table 3 and section 5.1).
pub(super) struct Benchmark {
    /// The model, and the data set here.
    trains: [&'static str; 2],
    /// The survey's data set, if it differs.
    paper_data: Option<&'static str>,
    epochs: &'static str,
    optimizer: &'static str,
    /// Quality without compression.
    baseline: &'static str,
}

/// The benchmarks whose data, or similar data, are available; image classification first.
pub(super) const BENCHMARKS: [Benchmark; 7] = [
    benchmark(["resnet20", "cifar10-jpg"], None, ["328", "momentum", "90.86 %"]),
    benchmark(["densenet40", "cifar10-jpg"], None, ["328", "momentum", "92.07 %"]),
    benchmark(["resnet9", "cifar10-jpg"], None, ["24", "momentum", "91.67 %"]),
    benchmark(["vgg16", "cifar10-jpg"], None, ["328", "momentum", "86.32 %"]),
    benchmark(
        ["ncf", "movielens-100k"],
        Some("MovieLens, 20 million ratings"),
        ["30", "adam", "95.98 %"],
    ),
    benchmark(["wordlstm", "ptb"], None, ["25", "sgd", "100.168"]),
    benchmark(["unet", "magnetic-tile"], Some("DAGM 2007"), ["2500", "rmsprop", "96.4 %"]),
];

/// The names of the benchmarks on the command line.
pub(super) const NAMES: [&str; 7] =
    ["resnet20", "densenet40", "resnet9", "vgg16", "ncf", "lstm", "unet"];

/// The names of the image classification benchmarks.
pub(super) const CLASSIFICATION: &[&str] = NAMES.split_at(4).0;

const fn benchmark(
    trains: [&'static str; 2],
    paper_data: Option<&'static str>,
    [epochs, optimizer, baseline]: [&'static str; 3],
) -> Benchmark {
    Benchmark { trains, paper_data, epochs, optimizer, baseline }
}

impl Benchmark {
    /// The survey's experiment: eight workers, vectors compressed too, and the survey's optimizer.
    /// The survey states neither batches nor learning rates.
    pub(super) fn experiment(&self) -> Experiment {
        let [model, data] = self.trains;
        Experiment::default().suiting_own(model).with(|e| {
            e.data = data.to_owned();
            e.workers = 8;
            e.exchange = known("all-gather");
            e.raw_vectors = false;
            e.links = [100.0, 1_000.0, 10_000.0, 25_000.0].map(Link::mbit).to_vec();
            e.epochs = Some(known(self.epochs));
            e.optimizer = known(self.optimizer);
            if model == "unet" {
                e.batch = 2;
                e.learning_rate = known("0.001");
                e.augment = Some(false);
            }
        })
    }

    /// The set-ups of the survey and of the runs. The runs train with 8 workers, unless the number
    /// of workers `varies` over runs of a few steps. With plain SGD, methods that send signs have
    /// their own learning rate: the survey's, and ours.
    pub(super) fn setup(
        &self,
        runs: &[RunRecord],
        varies: bool,
        sign_rates: Option<[&str; 2]>,
    ) -> Table {
        let ([model, data], run) = (self.trains, &runs[0]);
        let mut setup = Table::setup("survey");
        setup.line("model", model, format!("{}, {} parameters", run.model, run.parameters));
        setup.line("data", self.paper_data.unwrap_or(data), &run.data);
        if !varies {
            setup.line("workers", 8, run.workers);
            let here = format!("{} steps", run.steps);
            setup.line("length", format!("{} epochs", self.epochs), here);
        }
        setup.line("batch per worker", "not stated", run.batch);
        let optimizer = if sign_rates.is_some() { "sgd" } else { self.optimizer };
        setup.line("optimizer", optimizer, run.optimizer);
        setup.line("learning rate", "not stated", &run.learning_rate);
        if let Some([survey, here]) = sign_rates {
            setup.line("learning rate of signs", survey, here);
        }
        setup.line("quality of none", self.baseline, "see above");
        if !varies {
            setup.line("quality", "best in training", "at the end of training");
        }
        let exchange = "all-reduce if messages add, otherwise all-gather; Open MPI";
        setup.line("exchange", exchange, "the same, in one process");
        setup.line("accelerator", "one V100 per worker", "one core per worker");
        setup.line("bytes", "computed from types", "counted at the transport");
        setup.line("runs", "one", format!("{} of each", seeds_of_each(runs)));
        setup
    }
}

#[cfg(test)]
mod tests {
    use gradwire_train::CompressionSchedule;

    use super::*;

    #[test]
    fn specs_are_written_as_they_print() {
        for (_, text) in METHODS {
            assert_eq!(known::<CompressionSchedule>(text).to_string(), text);
        }
    }
}
