//! Figures 8 and 10 of the survey: throughput by the number of workers, beside what it would be if compression took no
//! time.

use gradwire_exchange::Link;

use super::paper::{self, BENCHMARKS, Differs, METHODS};
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::format::{bandwidth, significant, times};
use crate::plot::{Chart, Point, Scale, Series};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{About, Charts, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::scaling::{self, Scaled, scaled};
use crate::table::Grid;

/// Figure 8.
pub(crate) struct Figure8;

/// The methods compared.
const SCALED: [&str; 8] =
    ["none", "topk", "randomk", "qsgd", "terngrad", "efsignsgd", "3lc", "powersgd"];
/// Numbers of workers.
const WORKERS: [usize; 3] = [2, 4, 8];

impl Study for Figure8 {
    fn about(&self) -> About {
        About {
            rows: paper::names(),
            fixed: &["exchange", "workers"],
            ..About::of(
                "grace-fig8",
                "throughput with 2 to 8 workers, beside that of compression in no time (Figures 8 \
                 and 10; the same rows)",
                paper::CITATION,
            )
        }
    }

    /// As many steps as a throughput needs.
    fn experiment(&self, row: usize) -> Option<Experiment> {
        Some(BENCHMARKS[row].experiment().with(|e| {
            e.compressors = plans(SCALED);
            e.links_mbit = vec![1_000.0];
            e.epochs = None;
            e.steps = 20;
            e.evaluations = 1;
            e.evaluate_at_most = 1;
        }))
    }

    fn variants(&self, _: usize, experiment: &Experiment, _: Option<usize>) -> Vec<Experiment> {
        let with = |workers| experiment.clone().with(|e| e.workers = workers);
        WORKERS.iter().flat_map(|&workers| paper::by_exchange(&with(workers))).collect()
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let (experiment, runs) = (results.experiment, results.runs);
        // The wire is measured on the first link.
        let link = experiment.links()[0];
        let all = scaled(runs, link)?;
        let charts: Charts = vec![("scaling.svg".to_owned(), Box::new(by_workers(&all, link)))];
        let benchmark = &BENCHMARKS[results.row];
        let setup = benchmark.setup(&runs[0], experiment.seeds.len(), Differs::Scaling);
        let (table, note) = (table(&all), scaling::NOTE);
        let findings = Findings::of_several_setups("Measured", table, charts, setup, note);
        Ok(findings.report(self, results))
    }
}

/// Throughput of each method by the number of workers, and its parts.
fn table(all: &[Scaled]) -> Grid {
    let mut grid = Grid::new([
        "method",
        "compressor",
        "workers",
        "examples a second",
        "if compression took no time",
        "against none",
        "compute",
        "compress and decompress",
        "wire",
    ]);
    let seconds = |value: f64| format!("{} ms", significant(value * 1e3));
    for one in all {
        let none =
            all.iter().find(|other| other.compressor == "none" && other.workers == one.workers);
        let method = METHODS.iter().find(|(_, spec)| *spec == one.compressor);
        grid.push(vec![
            method.map_or("", |(name, _)| name).to_owned(),
            one.compressor.clone(),
            one.workers.to_string(),
            significant(one.throughput()),
            significant(one.bound()),
            none.map_or_else(String::new, |none| times(one.throughput() / none.throughput())),
            seconds(one.compute),
            seconds(one.codec),
            seconds(one.wire),
        ]);
    }
    grid
}

/// Throughput by workers: a line for each compressor, and a dashed one for its bound.
fn by_workers(all: &[Scaled], link: Link) -> Chart {
    let mut series = Vec::new();
    let mut names: Vec<&str> = all.iter().map(|one| one.compressor.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    for (colour, name) in names.into_iter().enumerate() {
        let of = || all.iter().filter(|one| one.compressor == name);
        let points = |value: fn(&Scaled) -> f64| -> Vec<Point> {
            let mut points: Vec<Point> =
                of().map(|one| Point::new(one.workers as f64, value(one))).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        let (label, bound) = (name.to_owned(), format!("{name}, bound"));
        series.push(Series { label, points: points(Scaled::throughput), colour, dashed: false });
        series.push(Series { label: bound, points: points(Scaled::bound), colour, dashed: true });
    }
    Chart {
        title: format!("Throughput by workers at {}", bandwidth(link.bits_per_second)),
        x: ("workers".to_owned(), Scale::Log),
        y: ("examples a second".to_owned(), Scale::Log),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_workers_has_its_exchanges() {
        let variants = Figure8.variants(4, &Figure8.experiment(4).unwrap(), None);
        let workers: Vec<usize> = variants.iter().map(|variant| variant.workers).collect();
        assert_eq!(workers, [2, 2, 4, 4, 8, 8]);
    }
}
