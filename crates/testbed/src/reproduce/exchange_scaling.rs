//! Bytes and time of exchanges by the number of workers, and the number from which scatter-reduce
//! takes less time than all-gather.
//!
//! The runs have a few steps, and every exchange carries the same model. The transport counts the
//! bytes. A second column has the bytes by the formulas of `docs/exchanges.md`, with b the bytes of
//! one worker's messages. Time is the CPU time of compressing and decompressing, plus the link
//! model's time for the bytes. The CPU time of the first step does not count, because the
//! processor's caches are cold.

use std::collections::BTreeSet;

use gradwire_exchange::{Exchange, HEADER_BYTES, Link};
use gradwire_train::RunRecord;

use super::findings::page;
use super::study::{Charts, Report, Results, Study, chart, schedules, with_server};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::format::{bandwidth, file_name, significant};
use crate::plot::{Chart, Point, Scale};
use crate::results;
use crate::step_time::{mean_step, wire_seconds, without_first};
use crate::table::Table;

/// The study of exchanges by the number of workers.
pub(crate) const EXCHANGE_SCALING: Study = Study {
    id: "exchange-scaling",
    summary: "bytes and time of all-gather, scatter-reduce and sparse all-reduce with 2 to 16 workers, beside the \
              formulas; under mpirun with as many as there are processes",
    fixed: &["exchange", "seed", "fraction"],
    runs_under_mpi: true,
    experiment: Some(|_| experiment()),
    variants: |_, experiment, workers| variants(experiment, workers),
    report: |results, _| report(results),
    ..Study::PLAIN
};

/// Numbers of workers.
const WORKERS: [usize; 7] = [2, 3, 4, 6, 8, 12, 16];
/// Each exchange with its compressors.
const EXCHANGES: [(&str, &[&str]); 4] = [
    ("all-reduce", &["none"]),
    ("all-gather", &["3lc", "topk:ratio=0.01"]),
    ("scatter-reduce", &["3lc", "topk:ratio=0.01"]),
    ("sparse-all-reduce", &["topk:ratio=0.01"]),
];

/// Four steps of a network with 1.9 million parameters on generated digits.
fn experiment() -> Experiment {
    with_server().with(|e| {
        e.model = known("mlp:1024-1024");
        e.compressors = schedules(["none", "3lc", "topk:ratio=0.01"]);
        e.steps = 4;
        e.batch = 4;
        e.evaluations = 1;
        e.evaluate_at_most = 1;
        e.links = [100.0, 1_000.0].map(Link::mbit).to_vec();
        e.raw_vectors = false;
    })
}

/// Every exchange with every number of workers, or with the requested number.
fn variants(experiment: &Experiment, workers: Option<usize>) -> Vec<Experiment> {
    let all = workers.map_or(WORKERS.to_vec(), |one| vec![one]);
    let variant = |workers, (exchange, specs): (&str, &[&str])| {
        experiment.clone().with(|e| {
            e.workers = workers;
            e.exchange = known(exchange);
            e.compressors = schedules(specs);
        })
    };
    let with = |&workers| EXCHANGES.map(|exchange| variant(workers, exchange));
    all.iter().flat_map(with).collect()
}

/// The page. It also shows the runs of other jobs, with more or fewer processes.
fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let first = &results.runs[0];
    let mut all = results::read(&results.out.join("runs.jsonl"))?;
    all.retain(|run| {
        (run.steps, run.batch, run.seed) == (first.steps, first.batch, first.seed)
            && (&run.model, &run.data_checksum) == (&first.model, &first.data_checksum)
    });
    let links = &results.experiment.links;
    let table = table(&all, links);
    let lines: String = crossings(&all, links).iter().map(|line| format!("- {line}\n")).collect();
    let text = format!(
        "{} with {} parameters. By the formula: the formula in docs/exchanges.md, for messages as long as between the \
         fewest workers. With more workers, gradients differ, and a scatter-reduce compresses slices, each with its \
         own scale. Time: the CPU time of compressing and decompressing, plus the time of the bytes in the link model, \
         without the first step.\n\n{}\n{lines}",
        first.model,
        first.parameters,
        table.markdown(),
    );
    Ok(page(results, &text, &charts(&all, links), vec![table.into(), lines.into()]))
}

/// The counted bytes that a worker sends in a step.
fn bytes(run: &RunRecord) -> f64 {
    run.bytes_up / run.steps.max(1) as f64
}

/// The bytes that a worker sends by the formulas if its messages have `b` bytes; `None` if the
/// bytes depend on the positions that messages share.
fn formula(run: &RunRecord, b: f64) -> Option<f64> {
    let (n, header) = (run.workers as f64, HEADER_BYTES as f64);
    match run.exchange {
        Exchange::AllGather => Some((n - 1.0) * (header + b)),
        Exchange::AllReduce | Exchange::ScatterReduce => {
            Some(2.0 * (n - 1.0) * header + 2.0 * b * (n - 1.0) / n)
        }
        _ => None,
    }
}

/// The bytes of one worker's messages, from the run with the fewest workers and its formula.
fn message(runs: &[RunRecord], compressor: &str) -> Option<f64> {
    let of = |run: &&RunRecord| run.compressor == compressor && formula(run, 0.0).is_some();
    let least = runs
        .iter()
        .filter(of)
        .min_by_key(|run| (run.workers, run.exchange != Exchange::AllGather))?;
    // Each formula is linear in b.
    let (at_0, at_1) = (formula(least, 0.0)?, formula(least, 1.0)?);
    Some((bytes(least) - at_0) / (at_1 - at_0))
}

/// The seconds of the exchange in a step: of the codec, without the first step, and of the bytes.
fn seconds(run: &RunRecord, link: Link) -> f64 {
    let warm = without_first(run).unwrap_or_else(|| run.clone());
    mean_step(&warm, |step| step.compress + step.decompress) + wire_seconds(run, link)
}

/// Every run: its bytes, the bytes of the formula, and its time over each link.
fn table(runs: &[RunRecord], links: &[Link]) -> Table {
    let expected = |run: &RunRecord| formula(run, message(runs, &run.compressor)?);
    let kilobytes = |bytes: f64| format!("{} kB", significant(bytes / 1e3));
    let mut columns = Table::of(runs)
        .column("exchange", |run| run.exchange)
        .column("compressor", |run| &run.compressor)
        .column("workers", |run| run.workers)
        .column("sent", |run| kilobytes(bytes(run)))
        .column("by the formula", |run| expected(run).map_or_else(String::new, kilobytes))
        .column("off", |run| {
            let off = |expected| format!("{:+.1} %", 100.0 * (bytes(run) / expected - 1.0));
            expected(run).map_or_else(String::new, off)
        });
    for &link in links {
        let time = |run| format!("{} ms", significant(1e3 * seconds(run, link)));
        columns = columns.column(bandwidth(link.bits_per_second), time);
    }
    columns.table().with_optional(&["off", "by the formula"])
}

/// A chart of bytes, and one of time for each link, with the names of their files.
fn charts(runs: &[RunRecord], links: &[Link]) -> Charts {
    let over_workers = |title: String, unit, value: &dyn Fn(&RunRecord) -> f64| {
        let mut chart = Chart::new(title, ("workers", Scale::Log), (unit, Scale::Log), []);
        for run in runs {
            let label = format!("{}, {}", run.exchange, run.compressor);
            chart.add(&label, Point::new(run.workers as f64, value(run)));
        }
        chart
    };
    let sent = "Sent by a worker per step".to_owned();
    let bytes = chart("bytes.svg", over_workers(sent, "kB", &|run| bytes(run) / 1e3));
    let times = links.iter().map(|&link| {
        let rate = bandwidth(link.bits_per_second);
        let time = |run: &RunRecord| 1e3 * seconds(run, link);
        let times = over_workers(format!("Exchange at {rate}"), "ms per step", &time);
        chart(format!("time-{}.svg", file_name(&rate)), times)
    });
    [bytes].into_iter().chain(times).collect()
}

/// The number of workers from which scatter-reduce takes less time than all-gather, by compressor
/// and link.
fn crossings(runs: &[RunRecord], links: &[Link]) -> Vec<String> {
    let gathered = runs.iter().filter(|run| run.exchange == Exchange::AllGather);
    let compressors: BTreeSet<&str> = gathered.map(|run| run.compressor.as_str()).collect();
    let line = |compressor: &str, link: Link| {
        let at = format!("`{compressor}` at {}", bandwidth(link.bits_per_second));
        match crossing(runs, compressor, link) {
            Some(workers) => format!(
                "{at}: scatter-reduce takes less time than all-gather with {workers} or more workers"
            ),
            None => format!("{at}: scatter-reduce does not stay ahead of all-gather"),
        }
    };
    let over_links = |compressor| links.iter().map(move |&link| (compressor, link));
    compressors.into_iter().flat_map(over_links).map(|(one, link)| line(one, link)).collect()
}

/// The least number of workers from which scatter-reduce stays faster.
fn crossing(runs: &[RunRecord], compressor: &str, link: Link) -> Option<usize> {
    let of = |exchange| {
        runs.iter().filter(move |run| run.compressor == compressor && run.exchange == exchange)
    };
    let ahead = of(Exchange::AllGather).filter_map(|gathered| {
        let scattered = of(Exchange::ScatterReduce).find(|run| run.workers == gathered.workers)?;
        Some((gathered.workers, seconds(scattered, link) < seconds(gathered, link)))
    });
    let mut ahead: Vec<_> = ahead.collect();
    ahead.sort_unstable();
    let behind = ahead.iter().rposition(|(_, ahead)| !ahead).map_or(0, |at| at + 1);
    ahead.get(behind).map(|(workers, _)| *workers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    /// A run whose workers sent `bytes` a step.
    fn run(exchange: &str, workers: usize, bytes: f64) -> RunRecord {
        let mut run = synthetic::run("3lc", 1);
        (run.exchange, run.workers) = (known(exchange), workers);
        run.trace.iter_mut().for_each(|step| (step.bytes_up, step.bytes_down) = (bytes, bytes));
        run.bytes_up = bytes * run.steps as f64;
        run.bytes_down = run.bytes_up;
        run
    }

    #[test]
    fn bytes_stand_beside_the_formulas() {
        // Messages of 988 bytes, and a header of 12.
        let runs = [
            run("all-gather", 2, 1000.0),
            run("all-gather", 4, 3000.0),
            run("scatter-reduce", 4, 2.0 * 3.0 * 12.0 + 1.5 * 988.0 * 1.01),
        ];
        assert_eq!(message(&runs, "3lc"), Some(988.0));
        assert_eq!(formula(&runs[1], 988.0), Some(3000.0));
        let text = table(&runs, &[Link::mbit(100.0)]).markdown();
        assert!(text.contains("+0.0 %") && text.contains("+1.0 %"), "{text}");
    }

    #[test]
    fn every_step_but_the_first_counts_once() {
        let mut run = run("all-gather", 2, 1000.0);
        (run.trace[0].compress, run.trace[1].compress) = (9.0, 2.0);
        // 3 ms in eight of nine steps, and a second for 1000 bytes.
        let expected = (2.002 + 8.0 * 0.003) / 9.0 + 1.0;
        let found = seconds(&run, Link::mbit(0.008));
        assert!((found - expected).abs() < 1e-6, "{found}");
    }

    #[test]
    fn crossings_are_where_one_stays_ahead() {
        let mut runs = Vec::new();
        for (workers, gathered, scattered) in
            [(2, 1.0, 2.0), (4, 3.0, 2.5), (8, 7.0, 9.0), (12, 11.0, 3.0), (16, 15.0, 3.0)]
        {
            runs.push(run("all-gather", workers, 1e6 * gathered));
            runs.push(run("scatter-reduce", workers, 1e6 * scattered));
        }
        let link = Link::mbit(1.0);
        assert_eq!(crossing(&runs, "3lc", link), Some(12));
        assert!(crossings(&runs, &[link])[0].contains("with 12 or more workers"));
        assert_eq!(crossing(&runs[..6], "3lc", link), None);
        assert!(crossings(&runs[..6], &[link])[0].contains("does not stay ahead"));
        assert_eq!(charts(&runs, &[link]).len(), 2);
    }

    #[test]
    fn every_exchange_runs_with_every_number_of_workers() {
        let experiment = experiment();
        let all = variants(&experiment, None);
        assert_eq!(all.len(), WORKERS.len() * EXCHANGES.len());
        assert!(all.iter().all(|one| one.check().is_ok()));
        assert!(variants(&experiment, Some(3)).iter().all(|one| one.workers == 3));
    }
}
