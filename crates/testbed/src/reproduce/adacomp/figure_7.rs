//! Figure 7 of the AdaComp paper: compression by the size of the mini-batch, and by the number of
//! learners.

use std::collections::BTreeMap;

use gradwire_train::RunRecord;

use super::paper::{self, CIFAR_CNN};
use crate::diagnosis::{self, rates_by_kind};
use crate::figures;
use crate::format::times;
use crate::plot::{Chart, Point, Scale};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{Study, chart, schedules};
use crate::table::{Table, or_dash};

/// Figure 7.
pub(crate) const FIGURE_7: Study = Study {
    id: "adacomp-fig7",
    summary: "compression by the size of the mini-batch, and by the number of learners (Figure 7)",
    citation: paper::CITATION,
    fixed: &["workers", "batch"],
    experiment: Some(|_| {
        let compressors = schedules(["none", "dryden", "adacomp"]);
        CIFAR_CNN.experiment().with(|e| e.compressors = compressors)
    }),
    variants: |_, experiment, _| {
        let of_shape = |shape| experiment.clone().with(|e| (e.workers, e.batch) = shape);
        SHAPES.map(of_shape).to_vec()
    },
    report: |results, _| {
        let runs = results.runs;
        let learners = rates_by("learners that share 128 images", runs, |run| {
            (run.workers * run.batch == 128).then_some(run.workers)
        });
        let batch = rates_by("images that 8 learners share", runs, |run| {
            (run.workers == 8).then_some(8 * run.batch)
        });
        let findings = Findings {
            tables: vec![("Paper and here", table(runs))],
            charts: vec![chart("learners.svg", learners), chart("batch.svg", batch)],
            setup: CIFAR_CNN.setup(runs, true),
            notes: vec![diagnosis::NOTE.to_owned()],
            summary: None,
        };
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// Learners, and batch per learner: different numbers of learners share a mini-batch of 128, and
/// eight learners share mini-batches of 32 and 512.
const SHAPES: [(usize, usize); 7] =
    [(1, 128), (8, 16), (16, 8), (64, 2), (128, 1), (8, 4), (8, 64)];

/// Error and compression by learners and batch.
fn table(runs: &[RunRecord]) -> Table {
    let rate = |run: &RunRecord, kind: usize| or_dash(rates_by_kind(&[run])[kind].map(times));
    Table::of(runs)
        .column("learners", |run| run.workers)
        .column("batch of each", |run| run.batch)
        .column("mini-batch", |run| run.workers * run.batch)
        .column("steps", |run| run.steps)
        .column("compressor", |run| &run.compressor)
        .column("error", |run| format!("{:.2} %", (1.0 - run.quality) * 100.0))
        .column("convolutions", |run| rate(run, 0))
        .column("other layers", |run| rate(run, 1))
        .column("all, by messages", |run| rate(run, 2))
        .table()
}

/// The compression rate of messages over the value of `shape` for a run: a line for each
/// compressor.
fn rates_by(what: &str, runs: &[RunRecord], shape: impl Fn(&RunRecord) -> Option<usize>) -> Chart {
    let lines = figures::lines(runs, |group| {
        // All seeds together.
        let mut shapes: BTreeMap<usize, Vec<&RunRecord>> = BTreeMap::new();
        for run in group {
            shape(run).into_iter().for_each(|at| shapes.entry(at).or_default().push(run));
        }
        let points = shapes.into_iter();
        points.filter_map(|(at, of)| Some(Point::new(at as f64, rates_by_kind(&of)[2]?))).collect()
    });
    let y = ("times smaller than f32", Scale::Log);
    Chart::new(format!("Compression by {what}"), (what, Scale::Log), y, lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn lengths_are_those_of_each_shape() {
        let of = |(batch, steps): (usize, u64)| {
            let mut run = synthetic::run("none", 0);
            (run.workers, run.batch, run.steps) = (8, batch, steps);
            run
        };
        let runs = [(16, 782), (4, 3125), (64, 196)].map(of);
        let table = table(&runs).markdown();
        assert!(table.contains("| 32 | 3125 | none |"), "{table}");
        let setup = CIFAR_CNN.setup(&runs, true).markdown();
        assert!(setup.contains("| length | 140 epochs | 196 to 3125 steps |"), "{setup}");
        let setup = CIFAR_CNN.setup(&runs[..1], false).markdown();
        assert!(setup.contains("| length | 140 epochs | 782 steps |"), "{setup}");
    }
}
