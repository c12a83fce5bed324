//! Error and compression by compressor: the page of those studies that have one set-up.

use gradwire_train::{Metric, RunRecord};

use super::paper::Row;
use crate::TestbedError;
use crate::diagnosis::rates_by_kind;
use crate::format::times;
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{Charts, Report, Results};
use crate::summary::Summary;
use crate::table::{Grid, or_dash, quality};

/// The methods of Table 2, and their specs: the baseline, AdaComp, and AdaComp with the longest bins.
pub(super) const METHODS: [(&str, &str); 3] =
    [("Baseline", "none"), ("AdaComp", "adacomp"), ("AdaComp, stress", "adacomp:conv=800,fc=8000")];

/// The page of a study of one set-up: the table, charts of its own, and those that most studies show. `setup` is the
/// paper's set-up; the errors of `paper` stand beside ours.
pub(super) fn report(
    results: &Results<'_>,
    setup: &Row,
    paper: Option<&Row>,
    charts: impl FnOnce(&[RunRecord]) -> Charts,
) -> Result<Report, TestbedError> {
    let (full, summary) = results.summarized()?;
    let table = table(results, paper, &summary, &full);
    let mut charts = charts(&full);
    charts.extend(charts_over_steps(&summary, &full));
    let setup = setup.setup(&full[0], results.experiment.seeds.len(), false);
    let findings = Findings::of_one_setup("Paper and here", table, &summary, charts, setup);
    Ok(findings.report(results))
}

/// Error and compression of each compressor; the paper's errors beside ours where a row of Table 2 is given.
fn table(
    results: &Results<'_>,
    paper: Option<&Row>,
    summary: &Summary,
    runs: &[RunRecord],
) -> Grid {
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
    Grid::of(&rows)
        .column("method", |(row, method, _)| match method {
            Some(at) => METHODS[*at].0,
            None => row.compressor.split(':').next().unwrap_or_default(),
        })
        .column("compressor", |(row, ..)| &row.compressor)
        .column(format!("{measure}: paper"), |(_, method, _)| or_dash(error(*method).map(percent)))
        .column("measured", |(row, ..)| match metric.is_fraction() {
            true => percent(1.0 - row.quality.mean),
            false => quality(metric, &row.quality),
        })
        .column("convolutions", |(.., rates)| or_dash(rates[0].map(times)))
        .column("other layers", |(.., rates)| or_dash(rates[1].map(times)))
        .column("all, counted", |(row, ..)| times(row.ratio_up))
        .grid()
}
