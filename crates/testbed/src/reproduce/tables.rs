//! The paper's figures beside measured ones.

use crate::format::{bandwidth, points, significant, times};
use crate::summary::{Row, Summary};
use crate::table::{Grid, difference, quality};

use super::paper;

/// The column of specs in both tables, which is wide.
pub const COMPRESSOR: usize = 1;

/// Table 1: accuracy, and speed-up by link; the paper's figure, then ours. Rows that were not run show
/// the paper's alone.
pub fn table_1(summary: &Summary) -> Grid {
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

/// Table 2: compression ratio and bits per state change, over all traffic and over the tensors that
/// travel compressed.
pub fn table_2(summary: &Summary) -> Grid {
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

fn find<'a>(summary: &'a Summary, compressor: &str) -> Option<&'a Row> {
    summary.rows.iter().find(|row| row.compressor == compressor)
}

fn measured(row: Option<&Row>, cell: impl FnOnce(&Row) -> Option<String>) -> String {
    row.and_then(cell).unwrap_or_else(|| "–".to_owned())
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
        let summary = summarize(&runs, &default_links()).unwrap();
        let grid = table_1(&summary);
        assert_eq!(grid.rows.len(), 11);
        let row = grid.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[..6], ["3LC (s=1.00)", "3lc", "93.32 %", "91.00 %", "-0.05", "+0.00"]);
        assert_eq!(row[6], "15.9×");
        assert!(row[7].trim_end_matches('×').parse::<f64>().unwrap() > 1.0);
        assert_eq!(grid.rows[1][3], "–");

        let grid = table_2(&summary);
        let row = grid.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[2..6], ["39.4×", "26.7×", "0.812", "1.20"]);
    }
}
