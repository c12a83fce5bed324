//! What the survey of compressed communication reports: H. Xu, C.-Y. Ho, A. M. Abdelmoniem, A. Dutta, E. H. Bergou,
//! K. Karatsenidis, M. Canini, P. Kalnis, "Compressed Communication for Distributed Deep Learning: Survey and
//! Quantitative Evaluation", KAUST technical report, 2020.

mod charts;
mod row;
mod tables;

use gradwire::Aggregation;
use gradwire_exchange::{Exchange, Link};
use gradwire_train::run::RunRecord;

use super::report::Charts;
use super::sbc::known;
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::format::bandwidth;
use crate::scaling::scaled;
use crate::summary::{Row as SummaryRow, Summary};
use crate::table::Grid;

use charts::{by_workers, scatter};
pub use row::Row;
use tables::{feedback, methods, scaling};

/// The paper in a line.
pub const CITATION: &str = "H. Xu, C.-Y. Ho, A. M. Abdelmoniem, A. Dutta, E. H. Bergou, K. Karatsenidis, M. Canini, \
     P. Kalnis: Compressed Communication for Distributed Deep Learning: Survey and Quantitative Evaluation. KAUST, 2020";

/// A figure or section of the survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Study {
    /// Figures 6, 7 and 12: quality against throughput on several links, and against volume.
    Figure6(Row),
    /// The same for the methods that the survey trains with plain SGD in image classification.
    PlainSgd(Row),
    /// Section 5.4: quality with error feedback and without.
    Feedback(Row),
    /// Figures 8 and 10: throughput by the number of workers, beside what it would be if compression took no time.
    Figure8(Row),
}

/// The specs of the survey's methods and of those of the other papers.
pub fn specs() -> Vec<gradwire::Spec> {
    METHODS.iter().map(|(_, spec)| known(spec)).collect()
}

/// The survey's methods as far as its evaluation has them, and those of the other papers.
const METHODS: [(&str, &str); 25] = [
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

/// Those that the survey trains with plain SGD in image classification (section 5.1), behind their baseline.
const PLAIN_SGD: [&str; 6] = ["none", "powersgd", "randomk", "dgc", "signsgd", "signum"];
/// The learning rate of signs in image classification (section 5.4).
const SIGN_RATE: &str = "0.001";

/// Those with a choice of error feedback (section 5.4).
const FED_BACK: [&str; 14] = [
    "signsgd",
    "signum",
    "topk",
    "randomk",
    "threshold:v=0.01",
    "8bit",
    "natural",
    "qsgd",
    "terngrad",
    "onebit",
    "inceptionn",
    "3lc",
    "int8",
    "powersgd",
];

/// Those whose scaling is looked at.
const SCALED: [&str; 8] =
    ["none", "topk", "randomk", "qsgd", "terngrad", "efsignsgd", "3lc", "powersgd"];
/// Numbers of workers.
const WORKERS: [usize; 3] = [2, 4, 8];

impl Study {
    /// All of them, each with its first row.
    pub const ALL: [Self; 4] = [
        Self::Figure6(Row::ResNet20),
        Self::PlainSgd(Row::ResNet20),
        Self::Feedback(Row::ResNet20),
        Self::Figure8(Row::ResNet20),
    ];

    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Self::Figure6(_) => "grace-fig6",
            Self::PlainSgd(_) => "grace-fig6-sgd",
            Self::Feedback(_) => "grace-feedback",
            Self::Figure8(_) => "grace-fig8",
        }
    }

    /// What it is, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Figure6(_) => {
                "quality against throughput by link and against volume in the survey (Figures 6, 7 and 12; --row \
                 resnet20, densenet40, resnet9, vgg16, ncf, lstm or unet)"
            }
            Self::PlainSgd(_) => {
                "the same for the methods that the survey trains with plain SGD (--row resnet20, densenet40, resnet9 \
                 or vgg16)"
            }
            Self::Feedback(_) => {
                "quality with error feedback and without it in the survey (section 5.4; the same rows)"
            }
            Self::Figure8(_) => {
                "throughput with 2 to 8 workers, beside that of compression in no time (Figures 8 and 10; the same rows)"
            }
        }
    }

    /// The benchmark.
    pub fn row(self) -> Row {
        let (Self::Figure6(row) | Self::PlainSgd(row) | Self::Feedback(row) | Self::Figure8(row)) =
            self;
        row
    }

    /// The same on another benchmark.
    ///
    /// # Errors
    /// If plain SGD is asked for where the survey has none.
    pub fn with_row(self, row: Row) -> Result<Self, String> {
        match self {
            Self::Figure6(_) => Ok(Self::Figure6(row)),
            Self::PlainSgd(_) if row.is_classification() => Ok(Self::PlainSgd(row)),
            Self::PlainSgd(_) => {
                let known = Row::ALL.into_iter().filter(|row| row.is_classification());
                let known: Vec<String> = known.map(|row| row.to_string()).collect();
                Err(format!("row '{row}' has one optimizer; rows with two: {}", known.join(", ")))
            }
            Self::Feedback(_) => Ok(Self::Feedback(row)),
            Self::Figure8(_) => Ok(Self::Figure8(row)),
        }
    }

    /// The specs it compares.
    pub fn compressors(self) -> Vec<String> {
        match self {
            Self::Figure6(_) => METHODS.map(|(_, spec)| spec.to_owned()).to_vec(),
            Self::PlainSgd(_) => PLAIN_SGD.map(str::to_owned).to_vec(),
            Self::Feedback(_) => {
                let pairs = FED_BACK.iter().flat_map(|id| both(id));
                std::iter::once("none".to_owned()).chain(pairs).collect()
            }
            Self::Figure8(_) => SCALED.map(str::to_owned).to_vec(),
        }
    }

    /// The survey's experiment.
    pub fn experiment(self) -> Experiment {
        let compressors = self.compressors().iter().map(|spec| known(spec)).collect();
        let experiment = Experiment { compressors, ..self.row().experiment() };
        match self {
            // Throughput needs no more.
            Self::Figure8(_) => Experiment {
                links_mbit: vec![1_000.0],
                epochs: None,
                steps: 20,
                evaluations: 1,
                evaluate_at_most: 1,
                ..experiment
            },
            Self::PlainSgd(_) => Experiment { optimizer: known("sgd"), ..experiment },
            _ => experiment,
        }
    }

    /// The experiments it consists of. As in the survey, messages that add are reduced on their way and others
    /// gathered; with plain SGD signs have a rate of their own; and the numbers of workers.
    pub fn variants(self, experiment: &Experiment) -> Vec<Experiment> {
        let adds = |compressor: &gradwire_train::plan::Plan| {
            let kind = compressor.first().entry().aggregation();
            matches!(kind, Aggregation::Linear | Aggregation::Rounds)
        };
        let votes = |compressor: &gradwire_train::plan::Plan| {
            compressor.first().entry().aggregation() == Aggregation::Vote
        };
        let (reduced, gathered): (Vec<_>, Vec<_>) =
            experiment.compressors.iter().cloned().partition(adds);
        let (slow, gathered): (Vec<_>, Vec<_>) = gathered
            .into_iter()
            .partition(|compressor| matches!(self, Self::PlainSgd(_)) && votes(compressor));
        let rate = &experiment.learning_rate;
        let workers = match self {
            Self::Figure8(_) => WORKERS.to_vec(),
            _ => vec![experiment.workers],
        };
        let groups = [
            (Exchange::AllReduce, reduced, rate.clone()),
            (Exchange::AllGather, gathered, rate.clone()),
            (Exchange::AllGather, slow, known(&self.sign_rate(&rate.to_string()))),
        ];
        let variants = workers.iter().flat_map(|&workers| {
            groups.iter().map(move |(exchange, compressors, learning_rate)| Experiment {
                workers,
                exchange: *exchange,
                compressors: compressors.clone(),
                learning_rate: learning_rate.clone(),
                ..experiment.clone()
            })
        });
        variants.filter(|variant| !variant.compressors.is_empty()).collect()
    }

    /// The learning rate of signs with plain SGD, where others have this one: the survey's, unless another was asked
    /// for.
    fn sign_rate(self, others: &str) -> String {
        let usual = self.row().experiment().learning_rate.to_string();
        if others == usual { SIGN_RATE } else { others }.to_owned()
    }

    /// The table that goes with its figures.
    ///
    /// # Errors
    /// If the wire cannot be measured.
    pub fn table(self, summary: &Summary, runs: &[RunRecord]) -> Result<Grid, TestbedError> {
        match self {
            Self::Figure6(_) | Self::PlainSgd(_) => Ok(methods(summary, &self.compressors())),
            Self::Feedback(_) => Ok(feedback(summary)),
            Self::Figure8(_) => Ok(scaling(&scaled(runs, link(summary))?)),
        }
    }

    /// Figures with the names of their files.
    ///
    /// # Errors
    /// If the wire cannot be measured.
    pub fn charts(self, summary: &Summary, runs: &[RunRecord]) -> Result<Charts, TestbedError> {
        let mut charts: Charts = Vec::new();
        match self {
            Self::Figure6(_) | Self::PlainSgd(_) => {
                for (at, link) in summary.links.iter().enumerate() {
                    let name =
                        bandwidth(link.bits_per_second).replace([' ', '/'], "-").to_lowercase();
                    let speed = |row: &SummaryRow| row.on_links[at].speedup;
                    let title =
                        format!("Quality and throughput at {}", bandwidth(link.bits_per_second));
                    let x = "throughput relative to none".to_owned();
                    charts.push((
                        format!("throughput-{name}.svg"),
                        Box::new(scatter(summary, title, x, speed)),
                    ));
                }
                let title = "Quality and volume".to_owned();
                let x = "volume relative to none".to_owned();
                let volume = |row: &SummaryRow| Some(1.0 / row.ratio);
                charts
                    .push(("volume.svg".to_owned(), Box::new(scatter(summary, title, x, volume))));
            }
            Self::Feedback(_) => {}
            Self::Figure8(_) => {
                let chart = by_workers(&scaled(runs, link(summary))?, link(summary));
                charts.push(("scaling.svg".to_owned(), Box::new(chart)));
            }
        }
        Ok(charts)
    }

    /// The survey's set-up beside the one of the runs.
    pub fn setup(self, run: &RunRecord, seeds: usize) -> Grid {
        let [model, data, epochs, optimizer, baseline] = self.row().paper();
        let mut grid = Grid::new(["", "survey", "here"]);
        let mut line = |what: &str, paper: &str, here: String| {
            grid.push(vec![what.to_owned(), paper.to_owned(), here]);
        };
        line("model", model, format!("{}, {} parameters", run.model, run.parameters));
        let data = match self.row() {
            Row::Ncf => "MovieLens, 20 million ratings",
            Row::UNet => "DAGM 2007",
            _ => data,
        };
        line("data", data, run.data.clone());
        if !matches!(self, Self::Figure8(_)) {
            line("workers", "8", run.workers.to_string());
            line("length", &format!("{epochs} epochs"), format!("{} steps", run.steps));
        }
        line("batch of a worker", "not said", run.batch.to_string());
        let optimizer = if matches!(self, Self::PlainSgd(_)) { "sgd" } else { optimizer };
        line("optimizer", optimizer, run.optimizer.clone());
        line("learning rate", "not said", run.learning_rate.clone());
        if matches!(self, Self::PlainSgd(_)) {
            line("learning rate of signs", SIGN_RATE, self.sign_rate(&run.learning_rate));
        }
        line("quality of none", baseline, "see above".to_owned());
        if !matches!(self, Self::Figure8(_)) {
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

/// What the wire is measured on: the first link.
fn link(summary: &Summary) -> Link {
    summary.links[0]
}

/// A compressor with error feedback and without, as specs print.
fn both(id: &str) -> [String; 2] {
    ["on", "off"].map(|ef| {
        let sign = if id.contains(':') { ',' } else { ':' };
        let spec: gradwire::Spec = known(&format!("{id}{sign}ef={ef}"));
        spec.to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_written_as_they_print() {
        for study in Study::ALL {
            for text in study.compressors() {
                assert_eq!(text.parse::<gradwire::Spec>().unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn what_adds_is_reduced_and_the_rest_gathered() {
        let variants = Study::ALL[0].variants(&Study::ALL[0].experiment());
        assert_eq!(variants.len(), 2);
        let ids = |at: usize| -> Vec<&str> {
            variants[at].compressors.iter().map(|plan| plan.first().entry().id).collect()
        };
        assert_eq!(variants[0].exchange, Exchange::AllReduce);
        assert_eq!(ids(0), ["none", "randomk", "powersgd", "gradzip"]);
        assert_eq!(variants[1].exchange, Exchange::AllGather);
        assert!(
            ids(1).contains(&"signsgd")
                && ids(1).contains(&"dryden")
                && ids(1).len() == METHODS.len() - 4
        );
        let study = Study::PlainSgd(Row::ResNet20);
        let rates: Vec<String> = study
            .variants(&study.experiment())
            .iter()
            .map(|one| format!("{} {} {}", one.optimizer, one.learning_rate, one.compressors.len()))
            .collect();
        let rate = study.experiment().learning_rate;
        assert_eq!(rates, [format!("sgd {rate} 3"), format!("sgd {rate} 1"), "sgd 0.001 2".into()]);
        assert_eq!(study.sign_rate("0.01"), "0.01");
        assert!(study.with_row(Row::Ncf).unwrap_err().contains("vgg16"));
        let study = Study::Figure8(Row::Ncf);
        let workers: Vec<usize> =
            study.variants(&study.experiment()).iter().map(|variant| variant.workers).collect();
        assert_eq!(workers, [2, 2, 4, 4, 8, 8]);
    }
}
