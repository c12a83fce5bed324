//! Figures 8 and 10 of the survey: throughput by the number of workers, and its bound if
//! compression took no time.

use std::collections::BTreeSet;

use gradwire_exchange::Link;

use super::paper::{self, BENCHMARKS, METHODS};
use crate::experiment::Experiment;
use crate::format::{bandwidth, significant, times};
use crate::plot::{Chart, Point, Scale};
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{Study, by_exchange, chart, schedules};
use crate::scaling::{self, Scaled, scaled};
use crate::table::Table;

/// Figure 8.
pub(crate) const FIGURE_8: Study = Study {
    id: "grace-fig8",
    summary: "throughput with 2 to 8 workers, beside the throughput if compression took no time \
        (Figures 8 and 10; the same rows)",
    citation: paper::CITATION,
    rows: &paper::NAMES,
    fixed: &["exchange", "workers"],
    experiment: Some(experiment),
    variants: |_, experiment, _| variants(experiment),
    report: |results, _| {
        let (experiment, runs) = (results.experiment, results.runs);
        // The wire is measured on the first link.
        let link = experiment.links[0];
        let all = scaled(runs, link)?;
        let findings = Findings {
            tables: vec![("Measured", table(&all))],
            charts: vec![chart("scaling.svg", by_workers(&all, link))],
            setup: BENCHMARKS[results.row].setup(runs, true, None),
            notes: vec![scaling::NOTE.to_owned()],
            summary: None,
        };
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// The methods compared.
const SCALED: [&str; 8] =
    ["none", "topk", "randomk", "qsgd", "terngrad", "efsignsgd", "3lc", "powersgd"];
/// Numbers of workers.
const WORKERS: [usize; 3] = [2, 4, 8];

/// The experiment of a row with few steps, which suffice for a throughput.
fn experiment(row: usize) -> Experiment {
    BENCHMARKS[row].experiment().with(|e| {
        e.compressors = schedules(SCALED);
        e.links = vec![Link::mbit(1_000.0)];
        e.epochs = None;
        e.steps = 20;
        e.evaluations = 1;
        e.evaluate_at_most = 1;
    })
}

fn variants(experiment: &Experiment) -> Vec<Experiment> {
    let with = |workers| experiment.clone().with(|e| e.workers = workers);
    WORKERS.iter().flat_map(|&workers| by_exchange(&with(workers))).collect()
}

/// Throughput of each method by the number of workers, and its parts.
fn table(all: &[Scaled]) -> Table {
    let method = |one: &Scaled| METHODS.iter().find(|(_, spec)| *spec == one.compressor);
    let against_none = |one: &Scaled| {
        let with_none =
            |other: &&Scaled| other.compressor == "none" && other.workers == one.workers;
        let none = all.iter().find(with_none);
        none.map_or_else(String::new, |none| times(one.throughput() / none.throughput()))
    };
    let milliseconds = |seconds: f64| format!("{} ms", significant(seconds * 1e3));
    Table::of(all)
        .column("method", |one| method(one).map_or("", |(name, _)| name))
        .column("compressor", |one| &one.compressor)
        .column("workers", |one| one.workers)
        .column("examples per second", |one| significant(one.throughput()))
        .column("if compression took no time", |one| significant(one.bound()))
        .column("against none", against_none)
        .column("compute", |one| milliseconds(one.compute))
        .column("compress and decompress", |one| milliseconds(one.codec))
        .column("wire", |one| milliseconds(one.wire))
        .table()
}

/// Throughput by workers: a line for each compressor, and a dashed one for its bound.
fn by_workers(all: &[Scaled], link: Link) -> Chart {
    let title = format!("Throughput by workers at {}", bandwidth(link.bits_per_second));
    let (x, y) = (("workers", Scale::Log), ("examples per second", Scale::Log));
    let mut chart = Chart::new(title, x, y, []);
    let names: BTreeSet<&str> = all.iter().map(|one| one.compressor.as_str()).collect();
    for (colour, name) in names.into_iter().enumerate() {
        let bound = format!("{name}, bound");
        for one in all.iter().filter(|one| one.compressor == name) {
            let workers = one.workers as f64;
            chart.add(name, Point::new(workers, one.throughput()));
            chart.add(&bound, Point::new(workers, one.bound()));
        }
        let [.., line, dashed] = chart.series.as_mut_slice() else { continue };
        (line.colour, dashed.colour, dashed.dashed) = (colour, colour, true);
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_workers_has_its_exchanges() {
        let variants = variants(&experiment(4));
        let workers: Vec<usize> = variants.iter().map(|variant| variant.workers).collect();
        assert_eq!(workers, [2, 2, 4, 4, 8, 8]);
    }
}
