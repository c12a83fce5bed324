//! Table 2 of the 3LC paper: compression of 3LC by sparsity multiplier.

use super::paper;
use crate::format::{significant, times};
use crate::reproduce::findings::{Findings, bits};
use crate::reproduce::study::Study;
use crate::summary::{Row, Summary};
use crate::table::{Grid, or_dash};

/// Table 2.
pub(crate) const TABLE_2: Study = Study {
    id: "3lc-table2",
    summary: "compression ratio and bits per state change of 3LC by sparsity multiplier (Table 2)",
    citation: paper::CITATION,
    experiment: Some(|_| {
        paper::experiment(["none"].into_iter().chain(paper::TABLE_2.map(|row| row.1)))
    }),
    report: |results, _| {
        let (full, summary) = results.summarized()?;
        let setup = paper::setup(results.experiment, &full[0]);
        let (heading, charts) = ("Table 2, paper and here", vec![bits(&full)]);
        let findings = Findings::of_one_setup(heading, table(&summary), &summary, charts, setup);
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// Compression ratio and bits per state change, over all traffic and over the tensors that travel compressed.
fn table(summary: &Summary) -> Grid {
    let bits = |spec: &str, value: fn(&Row) -> Option<f64>| {
        or_dash(summary.row(spec).and_then(value).map(significant))
    };
    Grid::of(&paper::TABLE_2)
        .column("design", |(name, ..)| name)
        .column("compressor", |(_, spec, ..)| spec)
        .column("ratio: paper", |(_, _, ratio, _)| times(*ratio))
        .column("measured", |(_, spec, ..)| or_dash(summary.row(spec).map(|row| times(row.ratio))))
        .column("bits: paper", |(.., bits)| significant(*bits))
        .column("measured", |(_, spec, ..)| bits(spec, |row| Some(row.bits_per_parameter)))
        .column("bits, compressed tensors", |(_, spec, ..)| {
            bits(spec, |row| row.bits_per_compressed)
        })
        .column("pushes", |(_, spec, ..)| bits(spec, |row| Some(row.bits_up)))
        .column("pulls", |(_, spec, ..)| bits(spec, |row| Some(row.bits_down)))
        .grid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn measured_figures_stand_beside_the_papers() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let grid = table(&synthetic::summary(&runs));
        let row = grid.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[2..6], ["39.4×", "26.7×", "0.812", "1.20"]);
    }
}
