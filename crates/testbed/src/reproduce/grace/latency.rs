//! Figure 9 of the survey: seconds to compress and decompress tensors of several sizes. It times
//! each method alone, thirty times.

use std::collections::BTreeSet;
use std::hint::black_box;

use gradwire::Spec;

use super::paper::{self, METHODS};
use crate::TestbedError;
use crate::bench::Bench;
use crate::experiment::known;
use crate::format::significant;
use crate::plot::{Chart, Point, Scale};
use crate::reproduce::findings::page;
use crate::reproduce::study::{Report, Results, Study, chart};
use crate::runner::Progress;
use crate::table::Table;

/// Figure 9.
pub(crate) const FIGURE_9: Study = Study {
    id: "grace-fig9",
    summary: "latency of compression and decompression by size of the input, in the survey (Figure 9)",
    citation: paper::CITATION,
    report,
    ..Study::PLAIN
};

/// Elements of the inputs: 0.1, 1, 10 and 100 MB.
const ELEMENTS: [usize; 4] = [25_000, 250_000, 2_500_000, 25_000_000];
/// Repetitions, as in the survey.
const REPETITIONS: usize = 30;
/// A method that was repeated [`LEAST`] times is not repeated after this number of seconds.
const ENOUGH: f64 = 10.0;
/// The fewest repetitions.
const LEAST: usize = 3;

/// Times the compressors, which takes minutes.
fn report(results: &Results<'_>, progress: &dyn Progress) -> Result<Report, TestbedError> {
    let mut all = Vec::new();
    for elements in ELEMENTS {
        for (_, schedule) in METHODS {
            // Without the ramp at the start of a training run.
            let spec = schedule.split(" from ").next().unwrap_or(schedule);
            if progress.stop() {
                let done = format!("{} measurements are done", all.len());
                return Err(TestbedError::Stopped(done));
            }
            progress.note(&format!("{spec}, {elements} elements"));
            all.push(Latency::measure(&known(spec), elements, REPETITIONS)?);
        }
    }
    let table = table(&all);
    let text = format!(
        "{}.\n\nMedian of {REPETITIONS} repetitions [smallest–largest] on one core, or of fewer if {REPETITIONS} would \
         take more than {ENOUGH} seconds. Single times are not kept.\n\n{}",
        paper::CITATION,
        table.markdown(),
    );
    let charts = vec![chart("latency.svg", lines(&all))];
    Ok(page(results, &text, &charts, vec![table.into()]))
}

/// The times of one compressor on one size.
#[derive(Debug, Clone, PartialEq)]
struct Latency {
    /// The spec.
    compressor: String,
    /// Elements of the tensor.
    elements: usize,
    /// Seconds of each repetition, from the least to the greatest.
    seconds: Vec<f64>,
}

impl Latency {
    /// Times a compressor on normal variates; buffers are warm and residuals in their steady state.
    ///
    /// # Errors
    /// If the compressor refuses the tensor.
    fn measure(spec: &Spec, elements: usize, repetitions: usize) -> Result<Self, TestbedError> {
        let mut bench = Bench::new(spec, elements);
        let failed = |error: gradwire::Error| TestbedError::Config(format!("{spec}: {error}"));
        bench.warm().map_err(failed)?;
        let mut once = || {
            let start = std::time::Instant::now();
            bench.encode()?;
            bench.decode()?;
            Ok(black_box(start.elapsed().as_secs_f64()))
        };
        let mut seconds: Vec<f64> = Vec::with_capacity(repetitions);
        while seconds.len() < LEAST.min(repetitions)
            || (seconds.len() < repetitions && seconds.iter().sum::<f64>() < ENOUGH)
        {
            seconds.push(once().map_err(failed)?);
        }
        seconds.sort_by(f64::total_cmp);
        Ok(Self { compressor: spec.to_string(), elements, seconds })
    }

    /// The median, the least and the greatest time, in milliseconds.
    fn milliseconds(&self) -> [f64; 3] {
        let last = self.seconds.len() - 1;
        [(last as f64 * 0.5).round() as usize, 0, last].map(|at| 1e3 * self.seconds[at])
    }
}

/// Median, least and greatest latency by compressor and size.
fn table(all: &[Latency]) -> Table {
    // Compressors in the order of first appearance.
    let mut names: Vec<&str> = Vec::new();
    for one in all {
        if !names.contains(&one.compressor.as_str()) {
            names.push(&one.compressor);
        }
    }
    let sizes: BTreeSet<usize> = all.iter().map(|one| one.elements).collect();
    let mut columns = Table::of(&names).column("compressor", |name| name);
    for size in sizes {
        let head = format!("{} MB", significant(4e-6 * size as f64));
        columns = columns.column(head, |name| {
            let one = all.iter().find(|one| one.compressor == *name && one.elements == size);
            one.map_or_else(String::new, |one| {
                let [median, least, greatest] = one.milliseconds().map(significant);
                format!("{median} ms [{least}–{greatest}]")
            })
        });
    }
    columns.table()
}

/// Latency over size: a line for each compressor through its medians, with bars from the least to
/// the greatest.
fn lines(all: &[Latency]) -> Chart {
    let (x, y) = (("MB of input", Scale::Log), ("ms", Scale::Log));
    let mut chart = Chart::new("Compression and decompression", x, y, []);
    for one in all {
        let [y, low, high] = one.milliseconds();
        chart.add(&one.compressor, Point { x: 4e-6 * one.elements as f64, y, low, high });
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_repetition_is_kept() {
        let one = Latency::measure(&"3lc".parse().unwrap(), 1000, 5).unwrap();
        assert_eq!(one.seconds.len(), 5);
        assert!(one.seconds[0] > 0.0 && one.seconds.is_sorted());
    }

    #[test]
    fn tables_and_charts_show_the_median() {
        let one = |compressor: &str, elements, seconds: &[f64]| Latency {
            compressor: compressor.to_owned(),
            elements,
            seconds: seconds.to_vec(),
        };
        let all = [
            one("3lc", 250_000, &[0.001, 0.002, 0.009]),
            one("topk", 250_000, &[0.004]),
            one("3lc", 2_500_000, &[0.02]),
        ];
        let text = table(&all).markdown();
        assert!(text.contains("2.00 ms [1.00–9.00]") && text.contains("10.0 MB"), "{text}");
        let chart = lines(&all);
        assert_eq!(chart.series.len(), 2);
        let point = chart.series[0].points[0];
        let found = [point.x, point.y, point.low, point.high];
        let expected = [1.0, 2.0, 1.0, 9.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    }
}
