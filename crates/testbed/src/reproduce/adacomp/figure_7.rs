//! Figure 7 of the AdaComp paper: compression by the size of the mini-batch, and by the number of learners.

use std::collections::BTreeMap;

use gradwire_train::RunRecord;

use super::paper::{self, CIFAR_CNN};
use super::tables::cell;
use crate::TestbedError;
use crate::diagnosis::{self, rates_by_kind};
use crate::experiment::Experiment;
use crate::plot::{Chart, Point, Scale, Series};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{About, Charts, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::summary::by_compressor;
use crate::table::Grid;

/// Figure 7.
pub(crate) struct Figure7;

/// Learners, and the batch of each: learners that share a mini-batch of 128, and eight learners with mini-batches of 32
/// and 512.
const SHAPES: [(usize, usize); 7] =
    [(1, 128), (8, 16), (16, 8), (64, 2), (128, 1), (8, 4), (8, 64)];

impl Study for Figure7 {
    fn about(&self) -> About {
        About {
            fixed: &["workers", "batch"],
            ..About::of(
                "adacomp-fig7",
                "compression by the size of the mini-batch, and by the number of learners (Figure \
                 7)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        let compressors = plans(["none", "dryden", "adacomp"]);
        Some(CIFAR_CNN.experiment().with(|e| e.compressors = compressors))
    }

    fn variants(&self, _: usize, experiment: &Experiment, _: Option<usize>) -> Vec<Experiment> {
        let of_shape = |(workers, batch)| {
            experiment.clone().with(|e| {
                e.workers = workers;
                e.batch = batch;
            })
        };
        SHAPES.map(of_shape).to_vec()
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let runs = results.runs;
        let charts: Charts = vec![
            (
                "learners.svg".to_owned(),
                Box::new(rates_by("learners that share 128 images", runs, |run| {
                    (run.workers * run.batch == 128).then_some(run.workers)
                })),
            ),
            (
                "batch.svg".to_owned(),
                Box::new(rates_by("images that 8 learners share", runs, |run| {
                    (run.workers == 8).then_some(8 * run.batch)
                })),
            ),
        ];
        let here = "what these bins and this fraction give throughout";
        let compression =
            ["compression", "the most at less than 1 % of degradation", here].map(str::to_owned);
        let seeds = results.experiment.seeds.len();
        let setup = CIFAR_CNN.setup_with(&runs[0], seeds, [], [compression]);
        let (heading, note) = ("Paper and here", diagnosis::NOTE);
        let findings = Findings::of_several_setups(heading, table(runs), charts, setup, note);
        Ok(findings.report(self, results))
    }
}

/// Error and compression by learners and batch.
fn table(runs: &[RunRecord]) -> Grid {
    let mut grid = Grid::new([
        "learners",
        "batch of each",
        "mini-batch",
        "compressor",
        "error",
        "convolutions",
        "other layers",
        "all, by messages",
    ]);
    for run in runs {
        let mut row = vec![
            run.workers.to_string(),
            run.batch.to_string(),
            (run.workers * run.batch).to_string(),
            run.compressor.clone(),
            format!("{:.2} %", (1.0 - run.quality) * 100.0),
        ];
        row.extend(rates_by_kind(&[run]).map(cell));
        grid.push(row);
    }
    grid
}

/// How much messages were compressed, by what `shape` says of a run: a line for each compressor.
fn rates_by(what: &str, runs: &[RunRecord], shape: impl Fn(&RunRecord) -> Option<usize>) -> Chart {
    let series = by_compressor(runs).into_iter().enumerate().map(|(colour, group)| {
        // Seeds together.
        let mut shapes: BTreeMap<usize, Vec<&RunRecord>> = BTreeMap::new();
        for run in &group {
            shape(run).into_iter().for_each(|at| shapes.entry(at).or_default().push(run));
        }
        let points = shapes.into_iter();
        let points =
            points.filter_map(|(at, of)| Some(Point::new(at as f64, rates_by_kind(&of)[2]?)));
        let points = points.collect();
        Series { label: group[0].compressor.clone(), points, colour, dashed: false }
    });
    Chart {
        title: format!("Compression by {what}"),
        x: (what.to_owned(), Scale::Log),
        y: ("times smaller than f32".to_owned(), Scale::Log),
        series: series.collect(),
    }
}
