//! What the survey of compressed communication reports: H. Xu, C.-Y. Ho, A. M. Abdelmoniem, A. Dutta, E. H. Bergou,
//! K. Karatsenidis, M. Canini, P. Kalnis, "Compressed Communication for Distributed Deep Learning: Survey and
//! Quantitative Evaluation", KAUST technical report, 2020.

use std::fmt;
use std::str::FromStr;

use gradwire::Aggregation;
use gradwire_exchange::{Link, Strategy};
use gradwire_train::run::{Metric, RunRecord};

use super::report::Charts;
use super::sbc::known;
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::figures::{quality_axis, shown};
use crate::format::{bandwidth, significant, times};
use crate::plot::{Chart, Point, Scale, Series};
use crate::scaling::{Scaled, scaled};
use crate::summary::{Row as SummaryRow, Summary};
use crate::table::{Grid, difference, quality};

/// The paper in a line.
pub const CITATION: &str = "H. Xu, C.-Y. Ho, A. M. Abdelmoniem, A. Dutta, E. H. Bergou, K. Karatsenidis, M. Canini, \
     P. Kalnis: Compressed Communication for Distributed Deep Learning: Survey and Quantitative Evaluation. KAUST, 2020";

/// A figure or section of the survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Study {
    /// Figures 6, 7 and 12: quality against throughput on several links, and against volume.
    Figure6(Row),
    /// Section 5.4: quality with error feedback and without.
    Feedback(Row),
    /// Figures 8 and 10: throughput by the number of workers, beside what it would be if compression took no time.
    Figure8(Row),
}

/// A benchmark of its Table 3 that trains on data to be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Row {
    /// ResNet-20 on CIFAR-10.
    #[default]
    ResNet20,
    /// DenseNet40-K12 on CIFAR-10.
    DenseNet40,
    /// The custom ResNet-9 on CIFAR-10.
    ResNet9,
    /// VGG16 on CIFAR-10.
    Vgg16,
    /// Neural collaborative filtering on MovieLens.
    Ncf,
    /// The LSTM on the Penn Treebank.
    Lstm,
    /// U-Net on images of defects.
    UNet,
}

/// The specs of the survey's methods and of those of the other papers.
pub fn specs() -> Vec<gradwire::Spec> {
    METHODS.iter().map(|(_, spec)| known(spec)).collect()
}

/// The survey's methods as far as its evaluation has them, and those of the other papers.
const METHODS: [(&str, &str); 24] = [
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
    ("Adaptive(0.01)", "adaptive"),
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

/// Those with a choice of error feedback (section 5.4).
const FED_BACK: [&str; 12] = [
    "topk",
    "randomk",
    "threshold",
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

impl Row {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ResNet20,
        Self::DenseNet40,
        Self::ResNet9,
        Self::Vgg16,
        Self::Ncf,
        Self::Lstm,
        Self::UNet,
    ];

    /// Model, data, epochs, optimizer and quality of the baseline, as Table 3 and section 5.1 give them.
    fn paper(self) -> [&'static str; 5] {
        match self {
            Self::ResNet20 => ["resnet20", "cifar10-jpg", "328", "momentum", "90.86 %"],
            Self::DenseNet40 => ["densenet40", "cifar10-jpg", "328", "momentum", "92.07 %"],
            Self::ResNet9 => ["resnet9", "cifar10-jpg", "24", "momentum", "91.67 %"],
            Self::Vgg16 => ["vgg16", "cifar10-jpg", "328", "momentum", "86.32 %"],
            Self::Ncf => ["ncf", "movielens-100k", "30", "adam", "95.98 %"],
            Self::Lstm => ["wordlstm", "ptb", "25", "sgd", "100.168"],
            Self::UNet => ["unet", "magnetic-tile", "2500", "rmsprop", "96.4 %"],
        }
    }

    /// The survey's experiment: eight workers, and the optimizer it names. It gives neither batches nor learning
    /// rates.
    fn experiment(self) -> Experiment {
        let [model, data, epochs, optimizer, _] = self.paper();
        let experiment = Experiment {
            data: data.to_owned(),
            workers: 8,
            exchange: known("all-gather"),
            links_mbit: vec![100.0, 1_000.0, 10_000.0, 25_000.0],
            ..Experiment::default().suiting(known(model))
        };
        let experiment =
            Experiment { epochs: Some(known(epochs)), optimizer: known(optimizer), ..experiment };
        match self {
            Self::UNet => Experiment {
                batch: 2,
                learning_rate: known("0.001"),
                augment: Some(false),
                ..experiment
            },
            _ => experiment,
        }
    }
}

impl Study {
    /// All of them, each with its first row.
    pub const ALL: [Self; 3] =
        [Self::Figure6(Row::ResNet20), Self::Feedback(Row::ResNet20), Self::Figure8(Row::ResNet20)];

    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Self::Figure6(_) => "grace-fig6",
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
        let (Self::Figure6(row) | Self::Feedback(row) | Self::Figure8(row)) = self;
        row
    }

    /// The same on another benchmark.
    pub fn with_row(self, row: Row) -> Self {
        match self {
            Self::Figure6(_) => Self::Figure6(row),
            Self::Feedback(_) => Self::Feedback(row),
            Self::Figure8(_) => Self::Figure8(row),
        }
    }

    /// The specs it compares.
    pub fn compressors(self) -> Vec<String> {
        match self {
            Self::Figure6(_) => METHODS.map(|(_, spec)| spec.to_owned()).to_vec(),
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
            _ => experiment,
        }
    }

    /// The experiments it consists of. As in the survey, messages that add are reduced on their way and others gathered;
    /// and the numbers of workers.
    pub fn variants(self, experiment: &Experiment) -> Vec<Experiment> {
        let adds = |compressor: &gradwire_train::plan::Plan| {
            let kind = compressor.first().entry().aggregation;
            matches!(kind, Aggregation::Linear | Aggregation::Rounds)
        };
        let (reduced, gathered): (Vec<_>, Vec<_>) =
            experiment.compressors.iter().cloned().partition(adds);
        let workers = match self {
            Self::Figure8(_) => WORKERS.to_vec(),
            _ => vec![experiment.workers],
        };
        let exchanges = [(Strategy::AllReduce, reduced), (Strategy::AllGather, gathered)];
        let variants = workers.iter().flat_map(|&workers| {
            exchanges.iter().map(move |(exchange, compressors)| Experiment {
                workers,
                exchange: *exchange,
                compressors: compressors.clone(),
                ..experiment.clone()
            })
        });
        variants.filter(|variant| !variant.compressors.is_empty()).collect()
    }

    /// The table that goes with its figures.
    ///
    /// # Errors
    /// If the wire cannot be measured.
    pub fn table(self, summary: &Summary, runs: &[RunRecord]) -> Result<Grid, TestbedError> {
        match self {
            Self::Figure6(_) => Ok(methods(summary)),
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
            Self::Figure6(_) => {
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
        line("optimizer", optimizer, run.optimizer.clone());
        line("learning rate", "not said", run.learning_rate.clone());
        line("quality of none", baseline, "see above".to_owned());
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
        let spec: gradwire::Spec = known(&format!("{id}:ef={ef}"));
        spec.to_string()
    })
}

/// Figures 6, 7 and 12 in numbers.
fn methods(summary: &Summary) -> Grid {
    let mut head = vec![
        "method".to_owned(),
        "compressor".to_owned(),
        summary.metric.name().to_owned(),
        "against none".to_owned(),
        "volume".to_owned(),
    ];
    head.extend(summary.links.iter().map(|link| bandwidth(link.bits_per_second)));
    let mut grid = Grid::new(head);
    for (name, spec) in METHODS {
        let Some(row) = summary.rows.iter().find(|row| row.compressor == spec) else { continue };
        let mut cells = vec![
            name.to_owned(),
            spec.to_owned(),
            quality(summary.metric, &row.quality),
            row.difference.map_or_else(String::new, |value| difference(summary.metric, value)),
            format!("{} %", significant(100.0 / row.ratio)),
        ];
        cells.extend(row.on_links.iter().map(|on| on.speedup.map_or_else(String::new, times)));
        grid.push(cells);
    }
    grid
}

/// Section 5.4 in numbers.
fn feedback(summary: &Summary) -> Grid {
    let mut grid = Grid::new(["compressor", "with error feedback", "without", "feedback brings"]);
    let find = |spec: &str| summary.rows.iter().find(|row| row.compressor == spec);
    let cell = |row: Option<&SummaryRow>| {
        row.map_or_else(|| "–".to_owned(), |row| quality(summary.metric, &row.quality))
    };
    if let Some(none) = find("none") {
        grid.push(vec!["none".to_owned(), "–".to_owned(), cell(Some(none)), "–".to_owned()]);
    }
    for id in FED_BACK {
        let [with, without] = both(id).map(|spec| find(&spec));
        if with.is_none() && without.is_none() {
            continue;
        }
        let brings = with.zip(without).map_or_else(
            || "–".to_owned(),
            |(with, without)| difference(summary.metric, with.quality.mean - without.quality.mean),
        );
        grid.push(vec![id.to_owned(), cell(with), cell(without), brings]);
    }
    grid
}

/// Figure 8 in numbers.
fn scaling(all: &[Scaled]) -> Grid {
    let mut grid = Grid::new([
        "method",
        "compressor",
        "workers",
        "examples a second",
        "if compression took no time",
        "against none",
        "compute",
        "compress and decompress",
        "wire",
    ]);
    let seconds = |value: f64| format!("{} ms", significant(value * 1e3));
    for one in all {
        let none =
            all.iter().find(|other| other.compressor == "none" && other.workers == one.workers);
        let method = METHODS.iter().find(|(_, spec)| *spec == one.compressor);
        grid.push(vec![
            method.map_or("", |(name, _)| name).to_owned(),
            one.compressor.clone(),
            one.workers.to_string(),
            significant(one.throughput()),
            significant(one.bound()),
            none.map_or_else(String::new, |none| times(one.throughput() / none.throughput())),
            seconds(one.compute),
            seconds(one.codec),
            seconds(one.wire),
        ]);
    }
    grid
}

/// Throughput by workers: a line for each compressor, and a dashed one for its bound.
fn by_workers(all: &[Scaled], link: Link) -> Chart {
    let mut series = Vec::new();
    let mut names: Vec<&str> = all.iter().map(|one| one.compressor.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    for (colour, name) in names.into_iter().enumerate() {
        let of = || all.iter().filter(|one| one.compressor == name);
        let points = |value: fn(&Scaled) -> f64| -> Vec<Point> {
            let mut points: Vec<Point> =
                of().map(|one| Point::new(one.workers as f64, value(one))).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        let (label, bound) = (name.to_owned(), format!("{name}, bound"));
        series.push(Series { label, points: points(Scaled::throughput), colour, dashed: false });
        series.push(Series { label: bound, points: points(Scaled::bound), colour, dashed: true });
    }
    Chart {
        title: format!("Throughput by workers at {}", bandwidth(link.bits_per_second)),
        x: ("workers".to_owned(), Scale::Log),
        y: ("examples a second".to_owned(), Scale::Log),
        series,
    }
}

/// Quality over something else: a point for each compressor.
fn scatter(
    summary: &Summary,
    title: String,
    x: String,
    value: impl Fn(&SummaryRow) -> Option<f64>,
) -> Chart {
    let metric: Metric = summary.metric;
    let points = summary.rows.iter().enumerate().filter_map(|(colour, row)| {
        let at = |quality: f64| shown(metric, quality);
        let (y, low, high) = (at(row.quality.mean), at(row.quality.min), at(row.quality.max));
        let point = Point { x: value(row)?, y, low, high };
        Some(Series { label: row.compressor.clone(), points: vec![point], colour, dashed: false })
    });
    Chart { title, x: (x, Scale::Log), y: quality_axis(metric), series: points.collect() }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResNet20 => "resnet20",
            Self::DenseNet40 => "densenet40",
            Self::ResNet9 => "resnet9",
            Self::Vgg16 => "vgg16",
            Self::Ncf => "ncf",
            Self::Lstm => "lstm",
            Self::UNet => "unet",
        })
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|row| row.to_string() == text).ok_or_else(|| {
            let known: Vec<String> = Self::ALL.iter().map(Row::to_string).collect();
            format!("unknown row '{text}'; known ones: {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

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
        assert_eq!(variants[0].exchange, Strategy::AllReduce);
        assert_eq!(ids(0), ["none", "randomk", "powersgd", "gradzip"]);
        assert_eq!(variants[1].exchange, Strategy::AllGather);
        assert!(ids(1).contains(&"signsgd") && ids(1).len() == METHODS.len() - 4);
        let study = Study::Figure8(Row::Ncf);
        let workers: Vec<usize> =
            study.variants(&study.experiment()).iter().map(|variant| variant.workers).collect();
        assert_eq!(workers, [2, 2, 4, 4, 8, 8]);
    }

    #[test]
    fn feedback_is_set_side_by_side() {
        // Seeds 1 and 3 have 91 and 93 per cent.
        let runs = [
            synthetic::run("none", 1),
            synthetic::run("topk", 3),
            synthetic::run("topk:ef=off", 1),
        ];
        let summary = summarize(&runs, &crate::summary::default_links()).unwrap();
        let text = feedback(&summary).markdown();
        assert!(
            text.contains("topk") && text.contains("93.00") && text.contains("+2.00"),
            "{text}"
        );
        assert!(!text.contains("qsgd"), "{text}");
    }

    #[test]
    fn a_point_for_each_compressor() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let summary = summarize(&runs, &[Link::mbit(0.001)]).unwrap();
        let charts = Study::ALL[0].charts(&summary, &runs).unwrap();
        let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].starts_with("throughput-") && names[1] == "volume.svg", "{names:?}");
        let chart = scatter(&summary, String::new(), String::new(), |row| Some(1.0 / row.ratio));
        // 300 bytes against 8000.
        assert!((chart.series[1].points[0].x - 300.0 / 8000.0).abs() < 1e-12);
        assert!((chart.series[1].points[0].y - 91.0).abs() < 1e-9);
    }
}
