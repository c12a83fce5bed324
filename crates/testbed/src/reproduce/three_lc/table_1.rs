//! Table 1 of the 3LC paper: speed-up and accuracy of eleven designs.

use super::paper::{self, find, measured};
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::figures;
use crate::format::{bandwidth, file_name, points, times};
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{About, Charts, Report, Results, Study};
use crate::runner::Progress;
use crate::summary::{Row, Summary};
use crate::table::{Grid, difference, quality};

/// Table 1.
pub(crate) struct Table1;

impl Study for Table1 {
    fn about(&self) -> About {
        About {
            fractions: &[0.25, 0.5, 0.75, 1.0],
            ..About::of(
                "3lc-table1",
                "speed-up and accuracy of the eleven designs of the 3LC paper (Table 1, Figures 4 \
                 to 9)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        Some(paper::experiment(paper::TABLE_1.iter().map(|design| design.compressor)))
    }

    /// Tables are of the longest runs, charts of quality over time of all lengths.
    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let (full, summary) = results.summarized()?;
        let mut charts: Charts = Vec::new();
        for &link in &summary.links {
            let name = format!("time-{}.svg", file_name(&bandwidth(link.bits_per_second)));
            charts.push((name, Box::new(figures::quality_by_length(results.runs, link))));
        }
        charts.extend(charts_over_steps(&summary, &full));
        let setup = paper::setup(results.experiment, &full[0]);
        let heading = "Table 1, paper and here";
        let findings = Findings::of_one_setup(heading, table(&summary), &summary, charts, setup);
        Ok(findings.report(self, results))
    }
}

/// Accuracy, and speed-up by link; the paper's figure, then ours. Rows that were not run show the paper's alone.
fn table(summary: &Summary) -> Grid {
    let head =
        ["design", "compressor", "accuracy: paper", "measured", "against: paper", "measured"];
    let mut head = head.map(str::to_owned).to_vec();
    for mbit in paper::LINKS_MBIT {
        head.push(format!("{}: paper", bandwidth(mbit * 1e6)));
        head.push("modelled".to_owned());
    }
    let mut grid = Grid::new(head);
    let baseline = paper::TABLE_1[0].accuracy;
    for design in &paper::TABLE_1 {
        let row = find(summary, design.compressor);
        let mut cells = vec![
            design.name.to_owned(),
            design.compressor.to_owned(),
            format!("{:.2} %", design.accuracy),
            measured(row, |row| Some(quality(summary.metric, &row.quality))),
            points((design.accuracy - baseline) / 100.0),
            measured(row, |row| row.difference.map(|value| difference(summary.metric, value))),
        ];
        for (at, mbit) in paper::LINKS_MBIT.into_iter().enumerate() {
            cells.push(times(design.speedup[at]));
            cells.push(measured(row, |row| speedup(row, mbit)));
        }
        grid.push(cells);
    }
    grid
}

fn speedup(row: &Row, mbit: f64) -> Option<String> {
    let here = row.on_links.iter().find(|on| on.link.bits_per_second == mbit * 1e6)?;
    here.speedup.map(times)
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
        assert_eq!(grid.rows.len(), 11);
        let row = grid.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[..6], ["3LC (s=1.00)", "3lc", "93.32 %", "91.00 %", "-0.05", "+0.00"]);
        assert_eq!(row[6], "15.9×");
        assert!(row[7].trim_end_matches('×').parse::<f64>().unwrap() > 1.0);
        assert_eq!(grid.rows[1][3], "–");
    }
}
