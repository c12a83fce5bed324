//! Tables 1 and 2 of the 3LC paper.

use super::paper;
use crate::figures;
use crate::format::{bandwidth, file_name, points, significant, times};
use crate::reproduce::findings::{Findings, bits, charts_over_steps};
use crate::reproduce::study::{Charts, Study, chart};
use crate::summary::tables::{difference, quality};
use crate::summary::{Row, Summary};
use crate::table::{Table, or_dash};

/// Table 1: speed-up and accuracy of eleven designs. Tables show the longest runs; charts of
/// quality over time show runs of all lengths.
pub(crate) const TABLE_1: Study = Study {
    id: "3lc-table1",
    summary: "speed-up and accuracy of the eleven designs of the 3LC paper (Table 1, Figures 4 to 9)",
    citation: paper::CITATION,
    fractions: &[0.25, 0.5, 0.75, 1.0],
    experiment: Some(|_| paper::experiment(paper::TABLE_1.map(|design| design.1))),
    report: |results, _| {
        let (full, summary) = results.summarized()?;
        let over_time = summary.links.iter().map(|&link| {
            let name = format!("time-{}.svg", file_name(&bandwidth(link.bits_per_second)));
            chart(name, figures::quality_by_length(results.runs, link))
        });
        let charts: Charts = over_time.chain(charts_over_steps(&summary, &full)).collect();
        let setup = paper::setup(results.experiment, &full);
        let (heading, table) = ("Table 1, paper and here", table_1(&summary));
        Ok(Findings::of_one_setup(heading, table, &summary, charts, setup).report(results))
    },
    ..Study::PLAIN
};

/// Accuracy, and speed-up by link: the paper's figure, then ours. Rows without runs show only the
/// paper's.
fn table_1(summary: &Summary) -> Table {
    let measured = |spec: &str, cell: &dyn Fn(&Row) -> Option<String>| {
        or_dash(summary.row(spec).and_then(cell))
    };
    let metric = summary.metric;
    let against = |row: &Row| row.difference.map(|value| difference(metric, &value));
    let baseline = paper::TABLE_1[0].3;
    let mut columns = Table::of(&paper::TABLE_1)
        .column("design", |(name, ..)| name)
        .column("compressor", |(_, spec, ..)| spec)
        .column("accuracy: paper", |(.., accuracy)| format!("{accuracy:.2} %"))
        .column("measured", |(_, spec, ..)| {
            measured(spec, &|row| Some(quality(metric, &row.quality)))
        })
        .column("against: paper", |(.., accuracy)| points((accuracy - baseline) / 100.0))
        .column("measured", |(_, spec, ..)| measured(spec, &against));
    for (at, mbit) in paper::LINKS_MBIT.into_iter().enumerate() {
        columns = columns
            .column(format!("{}: paper", bandwidth(mbit * 1e6)), |(.., speedup, _)| {
                times(speedup[at])
            })
            .column("modelled", |(_, spec, ..)| {
                let link = summary.links.iter().position(|link| link.bits_per_second == mbit * 1e6);
                measured(spec, &|row| row.on_links[link?].speedup.map(times))
            });
    }
    columns.table()
}

/// Table 2: compression of 3LC by sparsity multiplier.
pub(crate) const TABLE_2: Study = Study {
    id: "3lc-table2",
    summary: "compression ratio and bits per state change of 3LC by sparsity multiplier (Table 2)",
    citation: paper::CITATION,
    experiment: Some(|_| {
        paper::experiment(["none"].into_iter().chain(paper::TABLE_2.map(|row| row.1)))
    }),
    report: |results, _| {
        let (full, summary) = results.summarized()?;
        let setup = paper::setup(results.experiment, &full);
        let (heading, charts) = ("Table 2, paper and here", vec![bits(&full)]);
        let findings = Findings::of_one_setup(heading, table_2(&summary), &summary, charts, setup);
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// Compression ratio and bits per state change, over all traffic and over the tensors that are sent
/// compressed.
fn table_2(summary: &Summary) -> Table {
    let bits = |spec: &str, value: fn(&Row) -> Option<f64>| {
        or_dash(summary.row(spec).and_then(value).map(significant))
    };
    Table::of(&paper::TABLE_2)
        .column("design", |(name, ..)| name)
        .column("compressor", |(_, spec, ..)| spec)
        .column(summary.metric.name(), |(_, spec, ..)| {
            or_dash(summary.row(spec).map(|row| quality(summary.metric, &row.quality)))
        })
        .column("ratio: paper", |(_, _, ratio, _)| times(*ratio))
        .column("measured", |(_, spec, ..)| or_dash(summary.row(spec).map(|row| times(row.ratio))))
        .column("bits: paper", |(.., bits)| significant(*bits))
        .column("measured", |(_, spec, ..)| bits(spec, |row| Some(row.bits_per_parameter)))
        .column("bits, compressed tensors", |(_, spec, ..)| {
            bits(spec, |row| row.bits_per_compressed)
        })
        .column("pushes", |(_, spec, ..)| bits(spec, |row| Some(row.bits_up)))
        .column("pulls", |(_, spec, ..)| bits(spec, |row| Some(row.bits_down)))
        .table()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn measured_figures_stand_beside_the_papers() {
        let summary = synthetic::summary(&[synthetic::run("none", 1), synthetic::run("3lc", 1)]);
        let (table, other) = (table_1(&summary), table_2(&summary));
        assert_eq!(table.rows.len(), 11);
        let row = table.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[..6], ["3LC (s=1.00)", "3lc", "93.32 %", "91.00 %", "-0.05", "+0.00"]);
        assert_eq!(row[6], "15.9×");
        assert!(row[7].trim_end_matches('×').parse::<f64>().unwrap() > 1.0);
        assert_eq!(table.rows[1][3], "–");
        let row = other.rows.iter().find(|row| row[1] == "3lc").unwrap();
        assert_eq!(row[2..7], ["91.00 %", "39.4×", "26.7×", "0.812", "1.20"]);
    }
}
