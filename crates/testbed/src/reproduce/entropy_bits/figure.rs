//! Figures 1, 4 and 5 of the paper: accuracy, convergence and bits by the settings of
//! `entropy-bits`.

use gradwire_train::RunRecord;

use super::paper::{self, BITS, EPOCH};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::figures::{self, STEPS};
use crate::format::times;
use crate::plot::{BoxPlot, Chart, Point, Scale, Series};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{Charts, Report, Results, Study, chart, schedules};
use crate::summary::tables::quality;
use crate::summary::{Spread, Summary};
use crate::table::Table;

/// Accuracy against fixed bits.
pub(crate) const FIGURE_1: Study = Study {
    id: "entropy-bits-fig1",
    summary: "accuracy against fixed bits in the paper on entropy-driven bit widths (Figure 1)",
    citation: paper::CITATION,
    experiment: Some(|_| experiment(fixed_bits())),
    report: |results, _| report(results, "bits", fixed_bits()),
    ..Study::PLAIN
};

/// Accuracy and convergence against floor and ceiling.
pub(crate) const FIGURE_4: Study = Study {
    id: "entropy-bits-fig4",
    summary: "accuracy and convergence against floor and ceiling of the bits (Figure 4)",
    citation: paper::CITATION,
    experiment: Some(|_| experiment(bounds())),
    report: |results, _| report(results, "ceiling and floor of the bits", bounds()),
    ..Study::PLAIN
};

/// Bits a parameter over training, raw and in Huffman's code.
pub(crate) const FIGURE_5: Study = Study {
    id: "entropy-bits-fig5",
    summary: "bits per parameter over training, uncoded and with Huffman coding (Figure 5)",
    citation: paper::CITATION,
    experiment: Some(|_| experiment(codes())),
    report: |results, _| report(results, "setting", codes()),
    ..Study::PLAIN
};

/// Settings of the compressor: the label of each, and its spec.
type Settings = Vec<(String, String)>;

fn fixed_bits() -> Settings {
    let bits = [2, 3, 4, 5, 6, 7, 8, 10];
    settings(bits.map(|bits| (bits.to_string(), format!("bits={bits}"))))
}

/// Ceiling and floor: c + m, and c.
fn bounds() -> Settings {
    let bounds = [(10, 2), (10, 4), (10, 5), (10, 6), (10, 8), (5, 1), (7, 3), (9, 5), (11, 7)];
    settings(bounds.map(|(ceiling, floor)| {
        (format!("{ceiling}:{floor}"), format!("c={floor},m={}", ceiling - floor))
    }))
}

fn codes() -> Settings {
    settings(
        ["c=5", "c=5, raw", "c=6", "c=6, raw"]
            .map(|label| (label.to_owned(), label.replace(", raw", ",code=fixed"))),
    )
}

/// Settings from labels and parameters, the baseline first, with printed specs and a delay of one
/// epoch.
fn settings(parameters: impl IntoIterator<Item = (String, String)>) -> Settings {
    let specs = parameters.into_iter().map(|(label, text)| (label, format!("entropy-bits:{text}")));
    let all = [("baseline".to_owned(), "none".to_owned())].into_iter().chain(specs);
    let delayed = |spec: String| known::<gradwire::Spec>(&spec).with_every(EPOCH).to_string();
    all.map(|(label, spec)| (label, delayed(spec))).collect()
}

fn experiment(settings: Settings) -> Experiment {
    paper::experiment()
        .with(|e| e.compressors = schedules(settings.into_iter().map(|(_, spec)| spec)))
}

/// The page of a figure; `axis` names the parameter that its settings vary.
fn report(results: &Results<'_>, axis: &str, settings: Settings) -> Result<Report, TestbedError> {
    let (full, summary) = results.summarized()?;
    let setup = paper::setup(&full);
    let mut charts = boxes(axis, &settings, &full);
    if results.study.id == FIGURE_5.id {
        charts.push(chart("bits.svg", bits_over_steps(&full)));
    }
    let table = table(&settings, &summary, &full);
    let findings = Findings::of_one_setup("Paper and here", table, &summary, charts, setup);
    Ok(findings.report(results))
}

/// Accuracy and convergence of each setting.
fn boxes(axis: &str, settings: &Settings, runs: &[RunRecord]) -> Charts {
    let plot = |what: &str, y: &str, value: fn(&RunRecord) -> f64| {
        let columns =
            settings.iter().map(|(label, spec)| (label.clone(), values(runs, spec, value)));
        BoxPlot {
            title: format!("{what} by {axis}"),
            x: axis.to_owned(),
            y: y.to_owned(),
            columns: columns.filter(|(_, values)| !values.is_empty()).collect(),
        }
    };
    let accuracy = plot("Accuracy", "accuracy (%)", |run| run.quality * 100.0);
    let convergence = plot("Convergence", "steps to the best accuracy", peak);
    vec![chart("accuracy.svg", accuracy), chart("convergence.svg", convergence)]
}

/// A value of each run of a compressor.
fn values(runs: &[RunRecord], compressor: &str, value: fn(&RunRecord) -> f64) -> Vec<f64> {
    runs.iter().filter(|run| run.compressor == compressor).map(value).collect()
}

/// Accuracy, the steps to its peak, and the bits per parameter and exchange.
fn table(settings: &Settings, summary: &Summary, runs: &[RunRecord]) -> Table {
    let rows = settings.iter().filter_map(|(label, spec)| Some((label, summary.row(spec)?)));
    let rows: Vec<_> = rows.collect();
    let spread =
        |spec: &str, value| Spread::of(&values(runs, spec, value)).expect("a row has runs");
    let paper = |label: &str| {
        let of = BITS.iter().find(|(c, ..)| label.starts_with(&format!("c={c}")));
        of.map_or("–", |(_, raw, huffman)| if label.contains("raw") { raw } else { huffman })
    };
    Table::of(&rows)
        .column("setting", |(label, _)| label)
        .column("compressor", |(_, row)| &row.compressor)
        .column("accuracy", |(_, row)| quality(summary.metric, &row.quality))
        .column("steps to the peak", |(_, row)| {
            let Spread { mean, sd, .. } = spread(&row.compressor, peak);
            format!("{mean:.0} ± {sd:.0}")
        })
        .column("bits per parameter and exchange", |(_, row)| {
            format!("{:.2}", spread(&row.compressor, bits).mean)
        })
        .column("paper", |(label, _)| paper(label))
        .column("ratio upstream", |(_, row)| times(row.ratio_up))
        .table()
}

/// Steps to the best evaluation.
fn peak(run: &RunRecord) -> f64 {
    let best = run.evaluations.iter().map(|e| e.quality).fold(f64::NEG_INFINITY, f64::max);
    let first = run.evaluations.iter().find(|e| e.quality == best);
    first.map_or(0.0, |evaluation| evaluation.step as f64)
}

/// Average bits per parameter that a worker sent to each other worker in an exchange.
fn bits(run: &RunRecord) -> f64 {
    let messages = run.workers.saturating_sub(1).max(1) as f64 * run.rounds.max(1) as f64;
    run.bytes_up * 8.0 / (run.parameters as f64 * messages)
}

/// Bits per parameter and exchange by step: a record of the trace is the mean of the steps since
/// the previous record, and an exchange ends every epoch.
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
    let dashed = |line: Series| Series { dashed: line.label.contains("fixed"), ..line };
    let lines = figures::lines(runs, |group| windows(group[0])).into_iter().map(dashed);
    Chart::new("Bits per parameter and exchange", STEPS, ("bits", Scale::Log), lines)
}

#[cfg(test)]
mod tests {
    use gradwire_train::StepRecord;

    use super::*;
    use crate::synthetic;

    #[test]
    fn windows_of_any_length_show_what_an_exchange_took() {
        // 1500 steps, exchanges after 600, 1200 and the last, of 4 bits a parameter to each of 4
        // others.
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
