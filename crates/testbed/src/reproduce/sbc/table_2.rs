//! Table II of the SBC paper: quality and compression of six methods.

use super::paper::{self, METHODS, ROWS, Row};
use crate::figures;
use crate::format::times;
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{Study, chart};
use crate::summary::Summary;
use crate::summary::tables::quality;
use crate::table::{Table, or_dash};

/// Table II.
pub(crate) const TABLE_2: Study = Study {
    id: "sbc-table2",
    summary: "quality and compression of six methods in the SBC paper (Table II; --row lenet, resnet32, wordlstm or \
              charlstm)",
    citation: paper::CITATION,
    rows: &paper::NAMES,
    experiment: Some(|row| ROWS[row].experiment()),
    report: |results, _| {
        let row = &ROWS[results.row];
        let (full, summary) = results.summarized()?;
        let setup = row.setup(&full);
        let mut charts = charts_over_steps(&summary, &full);
        charts.insert(2, chart("bytes.svg", figures::quality_over_bytes(&full)));
        let (heading, table) = ("Table II, paper and here", table(row, &summary));
        let mut findings = Findings::of_one_setup(heading, table, &summary, charts, setup);
        paper::add_accounting(&mut findings, &full);
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// The paper's figures, then ours. The ratio compares the bytes sent with the baseline.
fn table(paper: &Row, summary: &Summary) -> Table {
    let metric = summary.metric;
    let specs = paper.compressors();
    let measured: Vec<_> = specs.iter().map(|spec| summary.row(spec)).collect();
    Table::of(&[0, 1, 2, 3, 4, 5])
        .column("method", |&at| METHODS[at])
        .column("compressor", |&at| &specs[at])
        .column(format!("{}: paper", metric.name()), |&at| metric.show(paper.quality[at]))
        .column("measured", |&at| or_dash(measured[at].map(|row| quality(metric, &row.quality))))
        .column("ratio upstream: paper", |&at| times(paper.ratio[at]))
        .column("measured", |&at| or_dash(measured[at].map(|row| times(row.ratio_up))))
        .table()
}
