//! What the paper on entropy-driven bit widths reports: A. Øland, B. Raj, "Reducing Communication Overhead
//! in Distributed Learning by an Order of Magnitude (Almost)", ICASSP 2015.

use gradwire_models::Split;
use gradwire_train::run::{Payload, RunRecord};

use super::sbc::known;
use crate::experiment::Experiment;
use crate::format::times;
use crate::plot::{BoxPlot, Chart, Figure, Point, Scale, Series};
use crate::summary::{Spread, Summary, by_compressor};
use crate::table::{Grid, quality};

/// The paper in a line.
pub const CITATION: &str = "A. Øland, B. Raj: Reducing Communication Overhead in Distributed Learning by an Order \
     of Magnitude (Almost). ICASSP 2015";

/// Steps of an epoch of MNIST with five workers and batches of 20.
const EPOCH: u64 = 600;
/// Bits at every exchange for each parameter, by c: raw, and in Huffman's code.
const PAPER_BITS: [(u64, &str, &str); 2] = [(5, "6.8", "3.55"), (6, "not said", "3.78")];

/// A figure of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Study {
    /// Figure 1: accuracy against fixed bits.
    Figure1,
    /// Figure 4: accuracy and convergence against floor and ceiling.
    Figure4,
    /// Figure 5: bits a parameter over training, raw and in Huffman's code.
    Figure5,
}

impl Study {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Figure1, Self::Figure4, Self::Figure5];

    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Self::Figure1 => "entropy-bits-fig1",
            Self::Figure4 => "entropy-bits-fig4",
            Self::Figure5 => "entropy-bits-fig5",
        }
    }

    /// What it is, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Figure1 => {
                "accuracy against fixed bits in the paper on entropy-driven bit widths (Figure 1)"
            }
            Self::Figure4 => {
                "accuracy and convergence against floor and ceiling of the bits (Figure 4)"
            }
            Self::Figure5 => "bits a parameter over training, raw and in Huffman's code (Figure 5)",
        }
    }

    /// The settings it compares: labels, and specs without their delay.
    fn settings(self) -> Vec<(String, String)> {
        let baseline = ("baseline".to_owned(), "none".to_owned());
        let own: Vec<(String, String)> = match self {
            Self::Figure1 => [2, 3, 4, 5, 6, 7, 8, 10]
                .map(|bits| (bits.to_string(), format!("entropy-bits:bits={bits}")))
                .to_vec(),
            // Ceiling and floor: c + m, and c.
            Self::Figure4 => {
                [(10, 2), (10, 4), (10, 5), (10, 6), (10, 8), (5, 1), (7, 3), (9, 5), (11, 7)]
                    .map(|(ceiling, floor)| {
                        let m = ceiling - floor;
                        (format!("{ceiling}:{floor}"), format!("entropy-bits:c={floor},m={m}"))
                    })
                    .to_vec()
            }
            Self::Figure5 => [5, 6]
                .into_iter()
                .flat_map(|c| {
                    let spec = format!("entropy-bits:c={c}");
                    [
                        (format!("c={c}"), spec.clone()),
                        (format!("c={c}, raw"), format!("{spec},code=fixed")),
                    ]
                })
                .collect(),
        };
        std::iter::once(baseline).chain(own).collect()
    }

    /// The specs it compares, printed as runs have them.
    pub fn compressors(self) -> Vec<String> {
        self.settings().iter().map(|(_, spec)| delayed(spec)).collect()
    }

    /// The paper's experiment: five workers with parts of MNIST of their own average their weights after each
    /// epoch. It gives neither batch nor learning rate, and trains on squared errors.
    pub fn experiment(self) -> Experiment {
        Experiment {
            data: "mnist".to_owned(),
            compressors: self.compressors().iter().map(|spec| known(spec)).collect(),
            send: Payload::Weights,
            split: Split::Shards { sizes: None },
            exchange: known("all-gather"),
            workers: 5,
            steps: 100 * EPOCH,
            batch: 20,
            optimizer: known("sgd"),
            learning_rate: known("step:from=0.1,factor=0.95,after=0.01,every=0.01"),
            weight_decay: 0.0,
            l1: 1e-4,
            augment: Some(false),
            raw_vectors: false,
            raw_below: 0,
            evaluations: 100,
            evaluate_at_most: 10_000,
            links_mbit: vec![10.0, 100.0, 1000.0],
            ..Experiment::default().suiting(known("mlp:392-50,tanh"))
        }
    }

    /// Accuracy, when it peaked, and bits a parameter and exchange.
    pub fn table(self, summary: &Summary, runs: &[RunRecord]) -> Grid {
        let mut grid = Grid::new([
            "setting",
            "compressor",
            "accuracy",
            "steps to the peak",
            "bits a parameter and exchange",
            "paper",
            "ratio upstream",
        ]);
        for (label, spec) in self.settings() {
            let compressor = delayed(&spec);
            let Some(row) = summary.rows.iter().find(|row| row.compressor == compressor) else {
                continue;
            };
            let of: Vec<&RunRecord> =
                runs.iter().filter(|run| run.compressor == compressor).collect();
            let spread = |value: fn(&RunRecord) -> f64| {
                Spread::of(&of.iter().map(|run| value(run)).collect::<Vec<_>>())
            };
            let paper = PAPER_BITS.iter().find_map(|(c, raw, huffman)| {
                let bits = if label == format!("c={c}") { huffman } else { raw };
                label.starts_with(&format!("c={c}")).then_some(*bits)
            });
            grid.push(vec![
                label,
                compressor,
                quality(summary.metric, &row.quality),
                spread(peak)
                    .map_or_else(String::new, |peak| format!("{:.0} ± {:.0}", peak.mean, peak.sd)),
                spread(bits).map_or_else(String::new, |bits| format!("{:.2}", bits.mean)),
                paper.unwrap_or("–").to_owned(),
                times(row.ratio_up),
            ]);
        }
        grid
    }

    /// Figures with the names of their files.
    pub fn charts(self, runs: &[RunRecord]) -> Vec<(String, Box<dyn Figure>)> {
        let mut charts: Vec<(String, Box<dyn Figure>)> = Vec::new();
        let setting = match self {
            Self::Figure1 => "bits",
            Self::Figure4 => "ceiling and floor of the bits",
            Self::Figure5 => "setting",
        };
        let accuracy = |run: &RunRecord| run.quality * 100.0;
        let plots: [(&str, &str, Measure); 2] = [
            ("accuracy", "accuracy (%)", accuracy),
            ("convergence", "steps to the best accuracy", peak),
        ];
        for (name, y, value) in plots {
            let columns = self.settings().into_iter().map(|(label, spec)| {
                let compressor = delayed(&spec);
                let of = runs.iter().filter(|run| run.compressor == compressor);
                (label, of.map(value).collect::<Vec<_>>())
            });
            let columns = columns.filter(|(_, values)| !values.is_empty()).collect();
            let plot = BoxPlot {
                title: format!(
                    "{} by {setting}",
                    if name == "accuracy" { "Accuracy" } else { "Convergence" }
                ),
                x: setting.to_owned(),
                y: y.to_owned(),
                columns,
            };
            charts.push((format!("{name}.svg"), Box::new(plot)));
        }
        if self == Self::Figure5 {
            charts.push(("bits.svg".to_owned(), Box::new(bits_over_steps(runs))));
        }
        charts
    }

    /// The paper's set-up beside the one of the runs.
    pub fn setup(self, run: &RunRecord, seeds: usize) -> Grid {
        let mut grid = Grid::new(["", "paper", "here"]);
        let mut line = |what: &str, paper: &str, here: String| {
            grid.push(vec![what.to_owned(), paper.to_owned(), here]);
        };
        line(
            "model",
            "784-392-50-10, tanh",
            format!("{}, {} parameters", run.model, run.parameters),
        );
        line("loss", "squared error", "cross-entropy".to_owned());
        line("workers", "5", run.workers.to_string());
        line(
            "exchange",
            "weights, after each epoch",
            format!("{} rounds of {}", run.rounds, run.send),
        );
        line("length", "100 epochs", format!("{} steps, {EPOCH} between exchanges", run.steps));
        line("batch", "not said", run.batch.to_string());
        line("learning rate", "exponential decay", run.learning_rate.clone());
        line("l1", "light", run.l1.to_string());
        line("runs of a setting", "50, or 1500 in Figure 1", seeds.to_string());
        grid.left_aligned()
    }
}

/// One number of a run.
type Measure = fn(&RunRecord) -> f64;

/// A spec with a delay of one epoch, as it prints.
fn delayed(spec: &str) -> String {
    let spec: gradwire::Spec = known(spec);
    spec.with_every(EPOCH).to_string()
}

/// Steps to the best evaluation.
fn peak(run: &RunRecord) -> f64 {
    let best = run.evaluations.iter().map(|e| e.quality).fold(f64::NEG_INFINITY, f64::max);
    let first = run.evaluations.iter().find(|e| e.quality == best);
    first.map_or(0.0, |evaluation| evaluation.step as f64)
}

/// Bits a worker sent to each other for a parameter in an exchange, on average.
fn bits(run: &RunRecord) -> f64 {
    let messages = run.workers.saturating_sub(1).max(1) as f64 * run.rounds.max(1) as f64;
    run.bytes_up * 8.0 / (run.parameters as f64 * messages)
}

/// Bits a parameter and exchange by step: a record of the trace is the mean of the steps since the one before,
/// and an exchange ends every epoch.
fn windows(run: &RunRecord) -> Vec<Point> {
    let numbers = run.parameters as f64 * run.workers.saturating_sub(1).max(1) as f64;
    let ends = run.trace.iter().map(|record| record.step + 1);
    let starts = std::iter::once(0).chain(ends.clone());
    let windows = run.trace.iter().zip(starts.zip(ends)).filter_map(|(record, (start, end))| {
        let last = if end == run.steps { end.div_ceil(EPOCH) } else { end / EPOCH };
        let exchanges = last - start / EPOCH;
        let bytes = record.bytes_up * (end - start) as f64;
        (exchanges > 0)
            .then(|| Point::new(record.step as f64, 8.0 * bytes / (exchanges as f64 * numbers)))
    });
    windows.collect()
}

/// The same over training: windows of steps, each with the exchanges that fall in it.
fn bits_over_steps(runs: &[RunRecord]) -> Chart {
    let series = by_compressor(runs).into_iter().enumerate().map(|(colour, group)| {
        let run = group[0];
        Series {
            label: run.compressor.clone(),
            points: windows(run),
            colour,
            dashed: run.compressor.contains("fixed"),
        }
    });
    Chart {
        title: "Bits a parameter and exchange".to_owned(),
        x: ("step".to_owned(), Scale::Linear),
        y: ("bits".to_owned(), Scale::Log),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use gradwire_train::run::StepRecord;

    use super::*;
    use crate::synthetic;

    #[test]
    fn windows_of_any_length_show_what_an_exchange_took() {
        // 1500 steps, exchanges after 600, 1200 and the last, of 4 bits a parameter to each of 4 others.
        let mut run =
            RunRecord { workers: 5, parameters: 1000, steps: 1500, ..synthetic::run("none", 1) };
        let bytes = |exchanges: f64, window: f64| exchanges * 4.0 * 500.0 / window;
        let record = |step, exchanges, window| StepRecord {
            step,
            bytes_up: bytes(exchanges, window),
            ..StepRecord::default()
        };
        run.trace =
            vec![record(499, 0.0, 500.0), record(999, 1.0, 500.0), record(1499, 2.0, 500.0)];
        let points: Vec<_> = windows(&run).iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(999.0, 4.0), (1499.0, 4.0)]);
        run.trace = vec![record(1499, 3.0, 1500.0)];
        assert_eq!(windows(&run)[0].y, 4.0);
    }
}
