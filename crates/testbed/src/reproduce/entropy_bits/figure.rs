//! Figures 1, 4 and 5 of the paper: accuracy, convergence and bits by the settings of `entropy-bits`.

use gradwire_train::RunRecord;

use super::paper::{self, BITS, EPOCH};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::format::times;
use crate::plot::{BoxPlot, Chart, Point, Scale, Series};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{About, Charts, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::summary::{Spread, Summary, by_compressor};
use crate::table::{Grid, quality};

/// A figure of the paper: one experiment with some settings of the compressor.
pub(crate) struct Figure {
    id: &'static str,
    summary: &'static str,
    /// What its settings are settings of.
    axis: &'static str,
    /// Labels, and specs without their delay.
    settings: fn() -> Vec<(String, String)>,
    /// Whether it shows bits over training.
    shows_bits: bool,
}

/// Accuracy against fixed bits.
pub(crate) const FIGURE_1: Figure = Figure {
    id: "entropy-bits-fig1",
    summary: "accuracy against fixed bits in the paper on entropy-driven bit widths (Figure 1)",
    axis: "bits",
    settings: || {
        [2, 3, 4, 5, 6, 7, 8, 10]
            .map(|bits| (bits.to_string(), format!("entropy-bits:bits={bits}")))
            .to_vec()
    },
    shows_bits: false,
};

/// Accuracy and convergence against floor and ceiling.
pub(crate) const FIGURE_4: Figure = Figure {
    id: "entropy-bits-fig4",
    summary: "accuracy and convergence against floor and ceiling of the bits (Figure 4)",
    axis: "ceiling and floor of the bits",
    // Ceiling and floor: c + m, and c.
    settings: || {
        [(10, 2), (10, 4), (10, 5), (10, 6), (10, 8), (5, 1), (7, 3), (9, 5), (11, 7)]
            .map(|(ceiling, floor)| {
                let m = ceiling - floor;
                (format!("{ceiling}:{floor}"), format!("entropy-bits:c={floor},m={m}"))
            })
            .to_vec()
    },
    shows_bits: false,
};

/// Bits a parameter over training, raw and in Huffman's code.
pub(crate) const FIGURE_5: Figure = Figure {
    id: "entropy-bits-fig5",
    summary: "bits a parameter over training, raw and in Huffman's code (Figure 5)",
    axis: "setting",
    settings: || {
        let both = |c| {
            let spec = format!("entropy-bits:c={c}");
            [
                (format!("c={c}"), spec.clone()),
                (format!("c={c}, raw"), format!("{spec},code=fixed")),
            ]
        };
        [5, 6].into_iter().flat_map(both).collect()
    },
    shows_bits: true,
};

impl Figure {
    /// The settings with their labels, the baseline first; specs as they print.
    fn settings(&self) -> Vec<(String, String)> {
        let baseline = ("baseline".to_owned(), "none".to_owned());
        let all = std::iter::once(baseline).chain((self.settings)());
        all.map(|(label, spec)| (label, delayed(&spec))).collect()
    }

    /// Accuracy and convergence of each setting, and bits over training.
    fn charts(&self, runs: &[RunRecord]) -> Charts {
        let accuracy = |run: &RunRecord| run.quality * 100.0;
        let plot = |what: &str, y: &str, value: fn(&RunRecord) -> f64| {
            let columns = self.settings().into_iter().map(|(label, compressor)| {
                let of = runs.iter().filter(|run| run.compressor == compressor);
                (label, of.map(value).collect::<Vec<_>>())
            });
            BoxPlot {
                title: format!("{what} by {}", self.axis),
                x: self.axis.to_owned(),
                y: y.to_owned(),
                columns: columns.filter(|(_, values)| !values.is_empty()).collect(),
            }
        };
        let convergence = plot("Convergence", "steps to the best accuracy", peak);
        let mut charts: Charts = vec![
            ("accuracy.svg".to_owned(), Box::new(plot("Accuracy", "accuracy (%)", accuracy))),
            ("convergence.svg".to_owned(), Box::new(convergence)),
        ];
        if self.shows_bits {
            charts.push(("bits.svg".to_owned(), Box::new(bits_over_steps(runs))));
        }
        charts
    }
}

impl Study for Figure {
    fn about(&self) -> About {
        About::of(self.id, self.summary, paper::CITATION)
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        let specs = self.settings().into_iter().map(|(_, spec)| spec);
        Some(paper::experiment().with(|e| e.compressors = plans(specs)))
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let experiment = results.experiment;
        let (full, summary) = results.summarized()?;
        let table = table(&self.settings(), &summary, &full);
        let setup = paper::setup(&full[0], experiment.seeds.len());
        let (heading, charts) = ("Paper and here", self.charts(&full));
        let findings = Findings::of_one_setup(heading, table, &summary, charts, setup);
        Ok(findings.report(self, results))
    }
}

/// Accuracy, the steps to its peak, and the bits a parameter took in an exchange.
fn table(settings: &[(String, String)], summary: &Summary, runs: &[RunRecord]) -> Grid {
    let mut grid = Grid::new([
        "setting",
        "compressor",
        "accuracy",
        "steps to the peak",
        "bits a parameter and exchange",
        "paper",
        "ratio upstream",
    ]);
    for (label, compressor) in settings {
        let Some(row) = summary.rows.iter().find(|row| row.compressor == *compressor) else {
            continue;
        };
        let of: Vec<&RunRecord> = runs.iter().filter(|run| run.compressor == *compressor).collect();
        let spread = |value: fn(&RunRecord) -> f64| {
            Spread::of(&of.iter().map(|run| value(run)).collect::<Vec<_>>())
        };
        let paper = BITS.iter().find_map(|(c, raw, huffman)| {
            let bits = if *label == format!("c={c}") { huffman } else { raw };
            label.starts_with(&format!("c={c}")).then_some(*bits)
        });
        grid.push(vec![
            label.clone(),
            compressor.clone(),
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
    use gradwire_train::StepRecord;

    use super::*;
    use crate::synthetic;

    #[test]
    fn windows_of_any_length_show_what_an_exchange_took() {
        // 1500 steps, exchanges after 600, 1200 and the last, of 4 bits a parameter to each of 4 others.
        let mut run = synthetic::run("none", 1);
        (run.workers, run.parameters, run.steps) = (5, 1000, 1500);
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
