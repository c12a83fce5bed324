//! Section 5.4 of the survey: quality with error feedback and without it.

use gradwire_train::RunRecord;

use super::paper::{self, BENCHMARKS};
use crate::experiment::known;
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{Study, by_exchange, by_momentum, schedules};
use crate::summary::tables::{difference, quality};
use crate::summary::{Row, Summary, paired};
use crate::table::{Table, or_dash};

/// Section 5.4.
pub(crate) const FEEDBACK: Study = Study {
    id: "grace-feedback",
    summary: "quality with and without error feedback in the survey (section 5.4; the same rows)",
    citation: paper::CITATION,
    rows: &paper::NAMES,
    fixed: &["exchange"],
    experiment: Some(|row| {
        let pairs = FED_BACK.iter().flat_map(|id| both(id));
        let compressors = schedules(std::iter::once("none".to_owned()).chain(pairs));
        BENCHMARKS[row].experiment().with(|e| e.compressors = compressors)
    }),
    variants: |_, experiment, _| by_momentum(experiment).iter().flat_map(by_exchange).collect(),
    report: |results, _| {
        let (full, summary) = results.summarized()?;
        let setup = BENCHMARKS[results.row].setup(&full, false, None);
        let charts = charts_over_steps(&summary, &full);
        let findings =
            Findings::of_one_setup("Measured", table(&summary, &full), &summary, charts, setup);
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// The methods that work with error feedback and without it (section 5.4).
const FED_BACK: [&str; 14] = [
    "signsgd",
    "signum",
    "topk",
    "randomk",
    "threshold:v=0.01",
    "8bit",
    "natural",
    "qsgd",
    "terngrad",
    "onebit",
    "inceptionn",
    "3lc",
    "int8",
    "powersgd",
];

/// The quality of each method with error feedback and without it.
fn table(summary: &Summary, runs: &[RunRecord]) -> Table {
    // The baseline has no error feedback.
    let none = summary.baseline().map(|none| ("none", [None, Some(none)]));
    let methods = FED_BACK.iter().map(|&id| (id, both(id).map(|spec| summary.row(&spec))));
    let run = methods.filter(|(_, both)| both.iter().any(Option::is_some));
    let rows: Vec<_> = none.into_iter().chain(run).collect();
    let cell = |row: Option<&Row>| or_dash(row.map(|row| quality(summary.metric, &row.quality)));
    let gain = |with: &Row, without: &Row| {
        let [with, without] = [with, without].map(|row| {
            runs.iter().filter(|run| run.compressor == row.compressor).collect::<Vec<_>>()
        });
        Some(difference(summary.metric, &paired(&with, &without)?))
    };
    Table::of(&rows)
        .column("compressor", |(id, _)| id)
        .column("with error feedback", |(_, [with, _])| cell(*with))
        .column("without", |(_, [_, without])| cell(*without))
        .column("feedback brings", |(_, [with, without])| {
            or_dash(with.zip(*without).and_then(|(with, without)| gain(with, without)))
        })
        .table()
}

/// A compressor with error feedback and without, as specs print.
fn both(id: &str) -> [String; 2] {
    ["on", "off"].map(|ef| {
        let sign = if id.contains(':') { ',' } else { ':' };
        known::<gradwire::Spec>(&format!("{id}{sign}ef={ef}")).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn feedback_is_set_side_by_side() {
        let mut runs = [
            synthetic::run("none", 1),
            synthetic::run("topk", 1),
            synthetic::run("topk:ef=off", 1),
        ];
        (runs[1].quality, runs[2].quality) = (0.93, 0.91);
        let summary = synthetic::summary(&runs);
        let text = table(&summary, &runs).markdown();
        assert!(
            text.contains("topk") && text.contains("93.00") && text.contains("+2.00"),
            "{text}"
        );
        assert!(!text.contains("qsgd"), "{text}");
    }
}
