//! Table II of the SBC paper: quality and compression of six methods.

use gradwire_train::CompressionSchedule;

use super::paper::{self, METHODS, ROWS, Row};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::figures;
use crate::format::times;
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{About, Report, Results, Study};
use crate::runner::Progress;
use crate::summary::{self, Summary};
use crate::table::{Grid, quality};

/// Table II.
pub(crate) struct Table2;

impl Study for Table2 {
    fn about(&self) -> About {
        About {
            rows: ROWS.iter().map(|row| row.name).collect(),
            ..About::of(
                "sbc-table2",
                "quality and compression of six methods in the SBC paper (Table II; --row lenet, \
                 resnet32, wordlstm or charlstm)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, row: usize) -> Option<Experiment> {
        Some(ROWS[row].experiment())
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let row = &ROWS[results.row];
        let (full, summary) = results.summarized()?;
        let setup = row.setup(results.experiment, &full[0]);
        let mut charts = charts_over_steps(&summary, &full);
        let bytes = Box::new(figures::quality_over_bytes(&full));
        charts.insert(charts.len() - 1, ("bytes.svg".to_owned(), bytes));
        let (heading, table) = ("Table II, paper and here", table(row, &summary));
        let mut findings = Findings::of_one_setup(heading, table, &summary, charts, setup);
        paper::add_accounting(&mut findings, &full);
        Ok(findings.report(self, results))
    }
}

/// The paper's figures, then ours. The ratio is upstream, to the baseline.
fn table(figures: &Row, summary: &Summary) -> Grid {
    let metric = figures.metric;
    let head = ["method", "compressor"].map(str::to_owned).into_iter().chain([
        format!("{}: paper", metric.name()),
        "measured".to_owned(),
        "ratio upstream: paper".to_owned(),
        "measured".to_owned(),
    ]);
    let mut grid = Grid::new(head);
    for (at, (method, compressor)) in METHODS.into_iter().zip(figures.compressors()).enumerate() {
        let compressor = known::<CompressionSchedule>(&compressor).to_string();
        let row = summary.rows.iter().find(|row| row.compressor == compressor);
        let measured =
            |cell: &dyn Fn(&summary::Row) -> String| row.map_or_else(|| "–".to_owned(), cell);
        grid.push(vec![
            method.to_owned(),
            compressor.clone(),
            metric.show(figures.quality[at]),
            measured(&|row| quality(metric, &row.quality)),
            times(figures.ratio[at]),
            measured(&|row| times(row.ratio_up)),
        ]);
    }
    grid
}
