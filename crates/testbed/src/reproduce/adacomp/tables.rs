//! Error and compression by compressor: the table of those studies that have one set-up.

use gradwire_train::CompressionSchedule;
use gradwire_train::{Metric, RunRecord};

use super::paper::Row;
use crate::TestbedError;
use crate::diagnosis::rates_by_kind;
use crate::format::times;
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{Charts, Results};
use crate::summary::Summary;
use crate::table::{Grid, quality};

/// The methods of Table 2, and their specs: the baseline, AdaComp, and AdaComp with the longest bins.
pub(super) const METHODS: [(&str, &str); 3] =
    [("Baseline", "none"), ("AdaComp", "adacomp"), ("AdaComp, stress", "adacomp:conv=800,fc=8000")];

/// What a study of one set-up has to show: the table, charts of its own, and those that most studies show. The
/// rows are that of the paper's set-up, and that whose errors stand beside ours.
pub(super) fn findings(
    results: &Results<'_>,
    (setup, errors): (&Row, Option<&Row>),
    charts: impl FnOnce(&[RunRecord]) -> Charts,
) -> Result<Findings, TestbedError> {
    let (experiment, (full, summary)) = (results.experiment, results.summarized()?);
    let table = table(errors, &experiment.compressors, &summary, &full);
    let mut charts = charts(&full);
    charts.extend(charts_over_steps(&summary, &full));
    let setup = setup.setup(&full[0], experiment.seeds.len());
    Ok(Findings::of_one_setup("Paper and here", table, &summary, charts, setup))
}

/// Error and compression of each compressor; the paper's errors beside ours where a row of Table 2 is given.
fn table(
    row: Option<&Row>,
    compressors: &[CompressionSchedule],
    summary: &Summary,
    runs: &[RunRecord],
) -> Grid {
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
    for compressor in compressors {
        let compressor = &compressor.to_string();
        let Some(measured) = summary.rows.iter().find(|row| row.compressor == *compressor) else {
            continue;
        };
        let of: Vec<&RunRecord> = runs.iter().filter(|run| run.compressor == *compressor).collect();
        let method = METHODS.iter().position(|(_, spec)| spec == compressor);
        let id = || compressor.split(':').next().unwrap_or_default();
        let error = row.zip(method).and_then(|(row, at)| *row.errors.get(at)?);
        let [convolutions, others, _] = rates_by_kind(&of).map(cell);
        grid.push(vec![
            method.map_or_else(id, |at| METHODS[at].0).to_owned(),
            compressor.clone(),
            error.map_or_else(|| "–".to_owned(), |error| format!("{:.2} %", error * 100.0)),
            match metric {
                Metric::Accuracy | Metric::Iou | Metric::HitRate => {
                    format!("{:.2} %", (1.0 - measured.quality.mean) * 100.0)
                }
                Metric::Perplexity => quality(metric, &measured.quality),
            },
            convolutions,
            others,
            times(measured.ratio_up),
        ]);
    }
    grid
}

/// A rate of compression, if there is one.
pub(super) fn cell(rate: Option<f64>) -> String {
    rate.map_or_else(|| "–".to_owned(), times)
}
