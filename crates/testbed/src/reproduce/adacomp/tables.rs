//! Table 2 and Figures 4 to 6 of the AdaComp paper: error and compression by compressor, for one
//! set-up.

use gradwire_train::CompressionSchedule;
use gradwire_train::{Metric, RunRecord};

use super::paper::{self, CIFAR_CNN, ROWS, Row};
use crate::TestbedError;
use crate::diagnosis::{self, rates_by_kind};
use crate::figures;
use crate::format::times;
use crate::reproduce::findings::{Findings, charts_of_layers, charts_over_steps};
use crate::reproduce::study::{Charts, Report, Results, Study, chart, schedules};
use crate::summary::Summary;
use crate::summary::tables::quality;
use crate::table::{Table, or_dash};

/// Table 2: error of a model with and without compression, and with the longest bins.
pub(crate) const TABLE_2: Study = Study {
    id: "adacomp-table2",
    summary: "error and compression by kind of layer in the AdaComp paper (Table 2; --row mnist-cnn, cifar-cnn, \
              bn50-dnn or lstm)",
    citation: paper::CITATION,
    rows: &paper::NAMES,
    experiment: Some(|row| {
        ROWS[row].experiment().with(|e| e.compressors = schedules(METHODS.map(|(_, spec)| spec)))
    }),
    report: |results, _| {
        let row = &ROWS[results.row];
        report(results, row, Some(row), charts_of_layers)
    },
    ..Study::PLAIN
};

/// The methods of Table 2, and their specs: the baseline, AdaComp, and AdaComp with the longest
/// bins.
const METHODS: [(&str, &str); 3] =
    [("Baseline", "none"), ("AdaComp", "adacomp"), ("AdaComp, stress", "adacomp:conv=800,fc=8000")];

/// Figure 4: error against compression rate of three methods.
pub(crate) const FIGURE_4: Study = Study {
    id: "adacomp-fig4",
    summary: "error against compression rate of Dryden's method, local selection and AdaComp (Figure 4)",
    citation: paper::CITATION,
    experiment: Some(|_| CIFAR_CNN.experiment().with(|e| e.compressors = all_bins())),
    report: |results, _| {
        let charts = |runs: &[_]| vec![chart("rate.svg", figures::by_rate(runs))];
        report(results, &CIFAR_CNN, None, charts)
    },
    ..Study::PLAIN
};

/// Bins of local selection and AdaComp, and fractions of Dryden's method.
const BINS: [u64; 5] = [50, 200, 500, 2000, 8000];
const FRACTIONS: [f64; 5] = [0.01, 0.003, 0.001, 0.0003, 0.0001];

fn all_bins() -> Vec<CompressionSchedule> {
    let dryden = FRACTIONS.map(|ratio| format!("dryden:ratio={ratio}"));
    let local = BINS.map(|bin| format!("local-selection:conv={bin},fc={bin}"));
    let adacomp = BINS.map(|bin| format!("adacomp:conv={bin},fc={bin}"));
    let all = dryden.into_iter().chain(local).chain(adacomp);
    schedules(std::iter::once("none".to_owned()).chain(all))
}

/// Figures 5 and 6: residuals over training, with the fully connected layer compressed alone.
pub(crate) const FIGURE_5: Study = Study {
    id: "adacomp-fig5",
    summary: "residuals over training, the fully connected layer compressed alone (Figures 5 and 6)",
    citation: paper::CITATION,
    experiment: Some(|_| {
        CIFAR_CNN.experiment().with(|e| {
            e.compressors = schedules([
                "none",
                "local-selection:fc=200",
                "local-selection:fc=300",
                "local-selection:fc=1000",
                "adacomp:fc=5000",
            ]);
            e.raw_names = vec!["conv".to_owned()];
        })
    }),
    report: |results, _| report(results, &CIFAR_CNN, None, charts_of_layers),
    ..Study::PLAIN
};

/// The page of a study of one set-up: the table, its own charts, and the common charts. `setup` is
/// the paper's set-up; the table also shows the errors of `paper`.
fn report(
    results: &Results<'_>,
    setup: &Row,
    paper: Option<&Row>,
    charts: impl FnOnce(&[RunRecord]) -> Charts,
) -> Result<Report, TestbedError> {
    let (full, summary) = results.summarized()?;
    let table = table(results, paper, &summary, &full);
    let mut charts = charts(&full);
    charts.extend(charts_over_steps(&summary, &full));
    let setup = setup.setup(&full, false);
    let mut findings = Findings::of_one_setup("Paper and here", table, &summary, charts, setup);
    findings.notes.insert(0, diagnosis::NOTE.to_owned());
    Ok(findings.report(results))
}

/// Error and compression of each compressor, with the paper's errors if a row of Table 2 is given.
fn table(
    results: &Results<'_>,
    paper: Option<&Row>,
    summary: &Summary,
    runs: &[RunRecord],
) -> Table {
    let metric = summary.metric;
    let measure = if metric == Metric::Accuracy { "error" } else { metric.name() };
    let compressors = results.experiment.compressors.iter();
    let rows = compressors.filter_map(|compressor| summary.row(&compressor.to_string()));
    let rows: Vec<_> = rows
        .map(|row| {
            let runs = runs.iter().filter(|run| run.compressor == row.compressor);
            let method = METHODS.iter().position(|(_, spec)| *spec == row.compressor);
            (row, method, rates_by_kind(&runs.collect::<Vec<_>>()))
        })
        .collect();
    let percent = |error: f64| format!("{:.2} %", error * 100.0);
    let error = |method: Option<usize>| *paper?.errors.get(method?)?;
    Table::of(&rows)
        .column("method", |(row, method, _)| match method {
            Some(at) => METHODS[*at].0,
            None => row.compressor.split(':').next().unwrap_or_default(),
        })
        .column("compressor", |(row, ..)| &row.compressor)
        .column(format!("{measure}: paper"), |(_, method, _)| or_dash(error(*method).map(percent)))
        .column("measured", |(row, ..)| match metric {
            Metric::Accuracy => quality(metric, &row.quality.complement()),
            _ => quality(metric, &row.quality),
        })
        .column("convolutions", |(.., rates)| or_dash(rates[0].map(times)))
        .column("other layers", |(.., rates)| or_dash(rates[1].map(times)))
        .column("all, counted", |(row, ..)| times(row.ratio_up))
        .table()
}
