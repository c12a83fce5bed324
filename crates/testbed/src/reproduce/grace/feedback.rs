//! Section 5.4 of the survey: quality with error feedback and without it.

use gradwire::Spec;

use super::paper::{self, BENCHMARKS, Differs};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{About, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::summary::{Row, Summary};
use crate::table::{Grid, difference, quality};

/// Section 5.4.
pub(crate) struct Feedback;

/// Those with a choice of error feedback (section 5.4).
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

impl Study for Feedback {
    fn about(&self) -> About {
        About {
            rows: paper::names(),
            fixed: &["exchange"],
            ..About::of(
                "grace-feedback",
                "quality with error feedback and without it in the survey (section 5.4; the same \
                 rows)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, row: usize) -> Option<Experiment> {
        let pairs = FED_BACK.iter().flat_map(|id| both(id));
        let compressors = plans(std::iter::once("none".to_owned()).chain(pairs));
        Some(BENCHMARKS[row].experiment().with(|e| e.compressors = compressors))
    }

    fn variants(&self, _: usize, experiment: &Experiment, _: Option<usize>) -> Vec<Experiment> {
        paper::by_exchange(experiment)
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let experiment = results.experiment;
        let (full, summary) = results.summarized()?;
        let benchmark = &BENCHMARKS[results.row];
        let setup = benchmark.setup(&full[0], experiment.seeds.len(), Differs::Nothing);
        let charts = charts_over_steps(&summary, &full);
        let findings = Findings::of_one_setup("Measured", table(&summary), &summary, charts, setup);
        Ok(findings.report(self, results))
    }
}

/// The quality of each method with error feedback and without it.
fn table(summary: &Summary) -> Grid {
    let mut grid = Grid::new(["compressor", "with error feedback", "without", "feedback brings"]);
    let find = |spec: &str| summary.rows.iter().find(|row| row.compressor == spec);
    let cell = |row: Option<&Row>| {
        row.map_or_else(|| "–".to_owned(), |row| quality(summary.metric, &row.quality))
    };
    if let Some(none) = find("none") {
        grid.push(vec!["none".to_owned(), "–".to_owned(), cell(Some(none)), "–".to_owned()]);
    }
    for id in FED_BACK {
        let [with, without] = both(id).map(|spec| find(&spec));
        if with.is_none() && without.is_none() {
            continue;
        }
        let brings = with.zip(without).map_or_else(
            || "–".to_owned(),
            |(with, without)| difference(summary.metric, with.quality.mean - without.quality.mean),
        );
        grid.push(vec![id.to_owned(), cell(with), cell(without), brings]);
    }
    grid
}

/// A compressor with error feedback and without, as specs print.
fn both(id: &str) -> [String; 2] {
    ["on", "off"].map(|ef| {
        let sign = if id.contains(':') { ',' } else { ':' };
        let spec: Spec = known(&format!("{id}{sign}ef={ef}"));
        spec.to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

    #[test]
    fn feedback_is_set_side_by_side() {
        // Seeds 1 and 3 have 91 and 93 per cent.
        let runs = [
            synthetic::run("none", 1),
            synthetic::run("topk", 3),
            synthetic::run("topk:ef=off", 1),
        ];
        let summary = summarize(&runs, &crate::summary::default_links()).unwrap();
        let text = table(&summary).markdown();
        assert!(
            text.contains("topk") && text.contains("93.00") && text.contains("+2.00"),
            "{text}"
        );
        assert!(!text.contains("qsgd"), "{text}");
    }
}
