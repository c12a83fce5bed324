//! Table 2 of the 3LC paper: compression of 3LC by sparsity multiplier.

use super::paper::{self, find, measured};
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::format::{significant, times};
use crate::reproduce::findings::{Findings, bits};
use crate::reproduce::study::{About, Report, Results, Study};
use crate::runner::Progress;
use crate::summary::Summary;
use crate::table::Grid;

/// Table 2.
pub(crate) struct Table2;

impl Study for Table2 {
    fn about(&self) -> About {
        About::of(
            "3lc-table2",
            "compression ratio and bits per state change of 3LC by sparsity multiplier (Table 2)",
            paper::CITATION,
        )
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        let rows = paper::TABLE_2.iter().map(|row| row.compressor);
        Some(paper::experiment(std::iter::once("none").chain(rows)))
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let (full, summary) = results.summarized()?;
        let setup = paper::setup(results.experiment, &full[0]);
        let (heading, charts) = ("Table 2, paper and here", vec![bits(&full)]);
        let findings = Findings::of_one_setup(heading, table(&summary), &summary, charts, setup);
        Ok(findings.report(self, results))
    }
}

/// Compression ratio and bits per state change, over all traffic and over the tensors that travel compressed.
fn table(summary: &Summary) -> Grid {
    let mut grid = Grid::new([
        "design",
        "compressor",
        "ratio: paper",
        "measured",
        "bits: paper",
        "measured",
        "bits, compressed tensors",
        "pushes",
        "pulls",
    ]);
    for design in &paper::TABLE_2 {
        let row = find(summary, design.compressor);
        grid.push(vec![
            design.name.to_owned(),
            design.compressor.to_owned(),
            times(design.ratio),
            measured(row, |row| Some(times(row.ratio))),
            significant(design.bits),
            measured(row, |row| Some(significant(row.bits_per_parameter))),
            measured(row, |row| row.bits_per_compressed.map(significant)),
            measured(row, |row| Some(significant(row.bits_up))),
            measured(row, |row| Some(significant(row.bits_down))),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{default_links, summarize};
    use crate::synthetic;

    #[test]
    fn measured_figures_stand_beside_the_papers() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let grid = table(&summarize(&runs, &default_links()).unwrap());
        let row = grid.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[2..6], ["39.4×", "26.7×", "0.812", "1.20"]);
    }
}
