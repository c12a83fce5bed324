//! What the survey reports, and its experiments.

use gradwire::Spec;
use gradwire_exchange::Exchange;
use gradwire_train::CompressionSchedule;
use gradwire_train::RunRecord;

use crate::experiment::{Experiment, known};
use crate::table::Grid;

/// The paper in a line.
pub(super) const CITATION: &str = "H. Xu, C.-Y. Ho, A. M. Abdelmoniem, A. Dutta, E. H. Bergou, K. Karatsenidis, M. Canini, \
     P. Kalnis: Compressed Communication for Distributed Deep Learning: Survey and Quantitative Evaluation. KAUST, 2020";

/// The survey's methods as far as its evaluation has them, and those of the other papers.
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
    ("DGC", "dgc"),
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

/// The specs of all methods.
pub(super) fn specs() -> Vec<Spec> {
    METHODS.iter().map(|(_, spec)| known(spec)).collect()
}

/// A benchmark of the survey's Table 3, as that and section 5.1 give it.
pub(super) struct Benchmark {
    /// Its name on the command line.
    pub(super) name: &'static str,
    model: &'static str,
    /// The data here.
    data: &'static str,
    /// The survey's data, where they are others.
    paper_data: Option<&'static str>,
    epochs: &'static str,
    optimizer: &'static str,
    /// Quality without compression.
    baseline: &'static str,
}

/// The benchmarks that train on data that can be had; those of image classification first.
pub(super) const BENCHMARKS: [Benchmark; 7] = [
    benchmark("resnet20", ["resnet20", "cifar10-jpg", "328", "momentum", "90.86 %"]),
    benchmark("densenet40", ["densenet40", "cifar10-jpg", "328", "momentum", "92.07 %"]),
    benchmark("resnet9", ["resnet9", "cifar10-jpg", "24", "momentum", "91.67 %"]),
    benchmark("vgg16", ["vgg16", "cifar10-jpg", "328", "momentum", "86.32 %"]),
    Benchmark {
        paper_data: Some("MovieLens, 20 million ratings"),
        ..benchmark("ncf", ["ncf", "movielens-100k", "30", "adam", "95.98 %"])
    },
    benchmark("lstm", ["wordlstm", "ptb", "25", "sgd", "100.168"]),
    Benchmark {
        paper_data: Some("DAGM 2007"),
        ..benchmark("unet", ["unet", "magnetic-tile", "2500", "rmsprop", "96.4 %"])
    },
];

/// How many of the benchmarks, from the first, are of image classification.
pub(super) const CLASSIFICATION: usize = 4;

const fn benchmark(name: &'static str, paper: [&'static str; 5]) -> Benchmark {
    let [model, data, epochs, optimizer, baseline] = paper;
    Benchmark { name, model, data, paper_data: None, epochs, optimizer, baseline }
}

/// The names of all benchmarks.
pub(super) fn names() -> Vec<&'static str> {
    BENCHMARKS.iter().map(|benchmark| benchmark.name).collect()
}

impl Benchmark {
    /// The survey's experiment: eight workers, vectors compressed too, and the optimizer it names. It gives neither
    /// batches nor learning rates.
    pub(super) fn experiment(&self) -> Experiment {
        Experiment::default().suiting(known(self.model)).with(|e| {
            e.data = self.data.to_owned();
            e.workers = 8;
            e.exchange = known("all-gather");
            e.raw_vectors = false;
            e.links_mbit = vec![100.0, 1_000.0, 10_000.0, 25_000.0];
            e.epochs = Some(known(self.epochs));
            e.optimizer = known(self.optimizer);
            if self.name == "unet" {
                e.batch = 2;
                e.learning_rate = known("0.001");
                e.augment = Some(false);
            }
        })
    }

    /// The survey's set-up beside the one of the runs.
    pub(super) fn setup(&self, run: &RunRecord, seeds: usize, differs: Differs<'_>) -> Grid {
        let mut grid = Grid::new(["", "survey", "here"]);
        let mut line = |what: &str, paper: &str, here: String| {
            grid.push(vec![what.to_owned(), paper.to_owned(), here]);
        };
        line("model", self.model, format!("{}, {} parameters", run.model, run.parameters));
        line("data", self.paper_data.unwrap_or(self.data), run.data.clone());
        let trains = !matches!(differs, Differs::Scaling);
        if trains {
            line("workers", "8", run.workers.to_string());
            line("length", &format!("{} epochs", self.epochs), format!("{} steps", run.steps));
        }
        line("batch of a worker", "not said", run.batch.to_string());
        let (optimizer, sign_rates) = match differs {
            Differs::PlainSgd { sign_rates } => ("sgd", Some(sign_rates)),
            Differs::Nothing | Differs::Scaling => (self.optimizer, None),
        };
        line("optimizer", optimizer, run.optimizer.to_string());
        line("learning rate", "not said", run.learning_rate.to_string());
        if let Some([survey, here]) = sign_rates {
            line("learning rate of signs", survey, here.to_owned());
        }
        line("quality of none", self.baseline, "see above".to_owned());
        if trains {
            line("which quality", "the best in training", "that at the end".to_owned());
        }
        line(
            "exchange",
            "all-reduce where messages add, else all-gather; Open MPI",
            "the same, in one process".to_owned(),
        );
        line("accelerator", "one V100 a worker", "one core a worker".to_owned());
        line("bytes", "computed from types", "counted at the transport".to_owned());
        line("runs", "one", format!("{seeds} of each"));
        grid.left_aligned()
    }
}

/// How a study's set-up differs from that of Figure 6.
#[derive(Clone, Copy)]
pub(super) enum Differs<'a> {
    /// In nothing.
    Nothing,
    /// Plain SGD, with a learning rate for signs: the survey's, and ours.
    PlainSgd {
        /// Both.
        sign_rates: [&'a str; 2],
    },
    /// A few steps with several numbers of workers.
    Scaling,
}

/// The experiment by all-reduce with the compressors whose messages add, and by all-gather with the others, as in the
/// survey; less one for which there are no compressors.
pub(super) fn by_exchange(experiment: &Experiment) -> Vec<Experiment> {
    let adds = |plan: &CompressionSchedule| plan.first().entry().compressor().adds();
    let (reduced, gathered): (Vec<_>, Vec<_>) =
        experiment.compressors.iter().cloned().partition(adds);
    let groups = [(Exchange::AllReduce, reduced), (Exchange::AllGather, gathered)];
    let used = groups.into_iter().filter(|(_, compressors)| !compressors.is_empty());
    let variant = |(exchange, compressors)| {
        experiment.clone().with(|e| {
            e.exchange = exchange;
            e.compressors = compressors;
        })
    };
    used.map(variant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_written_as_they_print() {
        for (_, text) in METHODS {
            assert_eq!(known::<Spec>(text).to_string(), text);
        }
    }
}
