//! What the AdaComp paper reports: C.-Y. Chen, J. Choi, D. Brand, A. Agrawal, W. Zhang,
//! K. Gopalakrishnan, "AdaComp: Adaptive Residual Gradient Compression for Data-Parallel Distributed
//! Training", AAAI 2018.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use gradwire::Spec;
use gradwire_train::run::{Metric, RunRecord};

use super::sbc::known;
use crate::diagnosis::{self, rates_by_kind};
use crate::experiment::Experiment;
use crate::figures::by_rate;
use crate::format::times;
use crate::plot::{Chart, Figure, Point, Scale, Series};
use crate::summary::{Summary, by_compressor};
use crate::table::{Grid, quality};

/// The paper in a line.
pub const CITATION: &str = "C.-Y. Chen, J. Choi, D. Brand, A. Agrawal, W. Zhang, K. Gopalakrishnan: AdaComp: \
     Adaptive Residual Gradient Compression for Data-Parallel Distributed Training. AAAI 2018";

/// A table or figure of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Study {
    /// Table 2: error of a model with and without compression, and at the stress setting.
    Table2(Row),
    /// Figure 4: error against compression rate of three methods.
    Figure4,
    /// Figure 5: residuals over training, with the fully connected layer compressed alone.
    Figure5,
    /// Figure 7: compression by the size of the mini-batch, and by the number of learners.
    Figure7,
}

/// A column of Table 2, which is a row here, of those that need no data that are not to be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Row {
    /// MNIST-CNN.
    #[default]
    MnistCnn,
    /// CIFAR10-CNN.
    CifarCnn,
    /// BN50-DNN, on a generated task of its shape.
    Bn50Dnn,
    /// The LSTM on Shakespeare.
    Lstm,
}

/// Method, spec, and the paper's error of the rows.
const METHODS: [(&str, &str, [Option<f64>; 4]); 3] = [
    ("Baseline", "none", [Some(0.0088), Some(0.18), Some(0.598), None]),
    ("AdaComp", "adacomp", [Some(0.0085), Some(0.184), Some(0.598), None]),
    ("AdaComp, stress", "adacomp:conv=800,fc=8000", [None, None, None, None]),
];

/// Bins of the local methods, and fractions of Dryden's, in Figure 4.
const BINS: [u64; 5] = [50, 200, 500, 2000, 8000];
const FRACTIONS: [f64; 5] = [0.01, 0.003, 0.001, 0.0003, 0.0001];

impl Row {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::MnistCnn, Self::CifarCnn, Self::Bn50Dnn, Self::Lstm];

    /// Eight learners with a mini-batch as near to the paper's as they can share. The paper does not give
    /// its learning rates.
    fn experiment(self) -> Experiment {
        let set_up = |model: &str, data: &str, batch, epochs, rate: &str| {
            Experiment {
                data: data.to_owned(),
                exchange: known("all-gather"),
                workers: 8,
                weight_decay: 0.0,
                raw_vectors: false,
                raw_below: 0,
                evaluate_at_most: 10_000,
                links_mbit: vec![10.0, 100.0, 1000.0],
                diagnose: true,
                ..Experiment::default().suiting(known(model))
            }
            .with(batch, epochs, known(rate))
        };
        match self {
            Self::MnistCnn => set_up("lenet5:relu", "mnist", 12, 100.0, "cosine:from=0.005"),
            Self::CifarCnn => set_up("cifar-cnn", "cifar10-jpg", 16, 140.0, "cosine:from=0.02"),
            Self::Bn50Dnn => {
                let model = "mlp:1024-1024-1024-1024-1024";
                set_up(model, "frames", 32, 13.0, "cosine:from=0.05")
            }
            Self::Lstm => Experiment {
                optimizer: known("adam"),
                ..set_up("charlstm:512", "tinyshakespeare", 1, 45.0, "cosine:from=0.002")
            },
        }
    }

    fn paper(self) -> [&'static str; 5] {
        match self {
            Self::MnistCnn => {
                ["2 convolutions, 2 fully connected, 1.7 MB", "MNIST", "100", "100", "8"]
            }
            Self::CifarCnn => {
                ["3 convolutions, 1 fully connected, 0.3 MB", "CIFAR-10", "128", "140", "128"]
            }
            Self::Bn50Dnn => ["6 fully connected, 43 MB", "BN50", "256", "13", "8"],
            Self::Lstm => ["2 layers of 512, 13 MB", "Shakespeare", "10", "45", "8"],
        }
    }
}

impl Experiment {
    fn with(
        self,
        batch: usize,
        epochs: f64,
        learning_rate: gradwire_models::schedule::LearningRate,
    ) -> Self {
        Self { batch, epochs: Some(epochs), learning_rate, ..self }
    }
}

impl Study {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Table2(Row::MnistCnn), Self::Figure4, Self::Figure5, Self::Figure7];

    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Self::Table2(_) => "adacomp-table2",
            Self::Figure4 => "adacomp-fig4",
            Self::Figure5 => "adacomp-fig5",
            Self::Figure7 => "adacomp-fig7",
        }
    }

    /// What it is, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Table2(_) => {
                "error and compression by kind of layer in the AdaComp paper (Table 2; --row mnist-cnn, \
                 cifar-cnn, bn50-dnn or lstm)"
            }
            Self::Figure4 => {
                "error against compression rate of Dryden's method, local selection and AdaComp (Figure 4)"
            }
            Self::Figure5 => {
                "residuals over training, the fully connected layer compressed alone (Figures 5 and 6)"
            }
            Self::Figure7 => {
                "compression by the size of the mini-batch, and by the number of learners (Figure 7)"
            }
        }
    }

    /// The specs it compares, as they print: without what is a default.
    pub fn compressors(self) -> Vec<String> {
        let printed = |spec: &String| known::<Spec>(spec).to_string();
        self.settings().iter().map(printed).collect()
    }

    fn settings(self) -> Vec<String> {
        let own = |specs: &[&str]| specs.iter().map(|spec| (*spec).to_owned()).collect();
        match self {
            Self::Table2(_) => own(&METHODS.map(|(_, spec, _)| spec)),
            Self::Figure4 => {
                let dryden = FRACTIONS.map(|ratio| format!("dryden:ratio={ratio}"));
                let local = BINS.map(|bin| format!("local-selection:conv={bin},fc={bin}"));
                let adacomp = BINS.map(|bin| format!("adacomp:conv={bin},fc={bin}"));
                let all = dryden.into_iter().chain(local).chain(adacomp);
                std::iter::once("none".to_owned()).chain(all).collect()
            }
            Self::Figure5 => own(&[
                "none",
                "local-selection:fc=200",
                "local-selection:fc=300",
                "local-selection:fc=1000",
                "adacomp:fc=5000",
            ]),
            Self::Figure7 => own(&["none", "dryden", "adacomp"]),
        }
    }

    /// The paper's experiment, as far as it is known.
    pub fn experiment(self) -> Experiment {
        let experiment = match self {
            Self::Table2(row) => row.experiment(),
            Self::Figure4 | Self::Figure7 => Row::CifarCnn.experiment(),
            Self::Figure5 => {
                Experiment { raw_names: vec!["conv".to_owned()], ..Row::CifarCnn.experiment() }
            }
        };
        let compressors = self.compressors().iter().map(|spec| known(spec)).collect();
        Experiment { compressors, ..experiment }
    }

    /// The experiments it consists of: one, but for Figure 7, which has other learners and batches.
    pub fn variants(self, experiment: &Experiment) -> Vec<Experiment> {
        let Self::Figure7 = self else { return vec![experiment.clone()] };
        // Learners that share a mini-batch of 128, and eight learners with mini-batches of 32 and 512.
        let shapes = [(1, 128), (8, 16), (16, 8), (64, 2), (128, 1), (8, 4), (8, 64)];
        shapes.map(|(workers, batch)| Experiment { workers, batch, ..experiment.clone() }).to_vec()
    }

    /// Error and compression by learners and batch, of Figure 7.
    fn table_of_shapes(runs: &[RunRecord]) -> Grid {
        let mut grid = Grid::new([
            "learners",
            "batch of each",
            "mini-batch",
            "compressor",
            "error",
            "convolutions",
            "other layers",
            "all, by messages",
        ]);
        for run in runs {
            let cell = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), times);
            let mut row = vec![
                run.workers.to_string(),
                run.batch.to_string(),
                (run.workers * run.batch).to_string(),
                run.compressor.clone(),
                format!("{:.2} %", (1.0 - run.quality) * 100.0),
            ];
            row.extend(rates_by_kind(&[run]).map(cell));
            grid.push(row);
        }
        grid
    }

    /// Error and compression, the paper's beside ours where it gives them.
    pub fn table(self, summary: &Summary, runs: &[RunRecord]) -> Grid {
        if self == Self::Figure7 {
            return Self::table_of_shapes(runs);
        }
        let metric = summary.metric;
        let measure = if metric == Metric::Accuracy { "error" } else { metric.name() };
        let mut grid = Grid::new([
            "method".to_owned(),
            "compressor".to_owned(),
            format!("{measure}: paper"),
            "measured".to_owned(),
            "convolutions".to_owned(),
            "other layers".to_owned(),
            "all, counted".to_owned(),
        ]);
        for compressor in self.compressors() {
            let Some(row) = summary.rows.iter().find(|row| row.compressor == compressor) else {
                continue;
            };
            let method = METHODS.iter().find(|(_, spec, _)| *spec == compressor);
            let paper = match (self, method) {
                (Self::Table2(which), Some((_, _, errors))) => errors[which as usize],
                _ => None,
            };
            let of: Vec<&RunRecord> =
                runs.iter().filter(|run| run.compressor == compressor).collect();
            let rates = rates_by_kind(&of);
            let cell = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), times);
            grid.push(vec![
                method
                    .map_or(compressor.split(':').next().unwrap_or_default(), |(name, ..)| name)
                    .to_owned(),
                compressor.clone(),
                paper.map_or_else(|| "–".to_owned(), |error| format!("{:.2} %", error * 100.0)),
                match metric {
                    Metric::Accuracy | Metric::Iou | Metric::HitRate => {
                        format!("{:.2} %", (1.0 - row.quality.mean) * 100.0)
                    }
                    Metric::Perplexity => quality(metric, &row.quality),
                },
                cell(rates[0]),
                cell(rates[1]),
                times(row.ratio_up),
            ]);
        }
        grid
    }

    /// Figures with the names of their files.
    pub fn charts(self, runs: &[RunRecord]) -> Vec<(String, Box<dyn Figure>)> {
        let mut charts: Vec<(String, Box<dyn Figure>)> = Vec::new();
        let mut add = |name: String, chart: Chart| charts.push((name, Box::new(chart)));
        match self {
            Self::Figure4 => add("rate.svg".to_owned(), by_rate(runs)),
            Self::Figure7 => {
                let learners =
                    |run: &RunRecord| (run.workers * run.batch == 128).then_some(run.workers);
                let batch = |run: &RunRecord| (run.workers == 8).then_some(8 * run.batch);
                add(
                    "learners.svg".to_owned(),
                    rates_by("learners that share 128 images", runs, learners),
                );
                add("batch.svg".to_owned(), rates_by("images that 8 learners share", runs, batch));
            }
            Self::Table2(_) | Self::Figure5 => {
                for (at, chart) in diagnosis::charts(runs).into_iter().enumerate() {
                    add(format!("layers-{}.svg", at + 1), chart);
                }
            }
        }
        charts
    }

    /// The paper's set-up beside the one of the runs.
    pub fn setup(self, run: &RunRecord, seeds: usize) -> Grid {
        let row = match self {
            Self::Table2(row) => row,
            Self::Figure4 | Self::Figure5 | Self::Figure7 => Row::CifarCnn,
        };
        let [model, data, batch, epochs, learners] = row.paper();
        let mut grid = Grid::new(["", "paper", "here"]);
        let mut line = |what: &str, paper: &str, here: String| {
            grid.push(vec![what.to_owned(), paper.to_owned(), here]);
        };
        line("model", model, format!("{}, {} parameters", run.model, run.parameters));
        line("data", data, run.data.clone());
        if self != Self::Figure7 {
            line("mini-batch of all learners", batch, (run.batch * run.workers).to_string());
            line("learners", learners, run.workers.to_string());
        }
        line("length", &format!("{epochs} epochs"), format!("{} steps", run.steps));
        if self == Self::Figure7 {
            let here = "what these bins and this fraction give throughout";
            line("compression", "the most at less than 1 % of degradation", here.to_owned());
        }
        line("optimizer", "momentum 0.9, or Adam", run.optimizer.clone());
        line("learning rate", "not said", run.learning_rate.clone());
        line("seeds", "not said", seeds.to_string());
        line(
            "bytes",
            "8 or 16 bits an element sent",
            "counted: messages by layer, all at the transport".to_owned(),
        );
        grid.left_aligned()
    }
}

/// How much messages were compressed, by what `shape` says of a run: a line for each compressor.
fn rates_by(what: &str, runs: &[RunRecord], shape: impl Fn(&RunRecord) -> Option<usize>) -> Chart {
    let series = by_compressor(runs).into_iter().enumerate().map(|(colour, group)| {
        // Seeds together.
        let mut shapes: BTreeMap<usize, Vec<&RunRecord>> = BTreeMap::new();
        for run in &group {
            shape(run).into_iter().for_each(|at| shapes.entry(at).or_default().push(run));
        }
        let points = shapes.into_iter();
        let points =
            points.filter_map(|(at, of)| Some(Point::new(at as f64, rates_by_kind(&of)[2]?)));
        let points = points.collect();
        Series { label: group[0].compressor.clone(), points, colour, dashed: false }
    });
    Chart {
        title: format!("Compression by {what}"),
        x: (what.to_owned(), Scale::Log),
        y: ("times smaller than f32".to_owned(), Scale::Log),
        series: series.collect(),
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MnistCnn => "mnist-cnn",
            Self::CifarCnn => "cifar-cnn",
            Self::Bn50Dnn => "bn50-dnn",
            Self::Lstm => "lstm",
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
