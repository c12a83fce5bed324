//! Figure 9 of the survey: seconds to compress and decompress tensors of several sizes. It times each method alone, thirty
//! times.

use std::hint::black_box;

use gradwire::Spec;

use super::paper;
use crate::TestbedError;
use crate::bench::Bench;
use crate::experiment::Experiment;
use crate::format::significant;
use crate::plot::{Chart, Point, Scale, Series};
use crate::reproduce::findings::page;
use crate::reproduce::study::{About, Charts, Report, Results, Study};
use crate::runner::Progress;
use crate::table::Grid;

/// Figure 9.
pub(crate) struct Figure9;

/// Elements of the inputs: 0.1, 1, 10 and 100 MB.
const ELEMENTS: [usize; 4] = [25_000, 250_000, 2_500_000, 25_000_000];
/// Repetitions, as in the survey.
const REPETITIONS: usize = 30;
/// A method is not repeated further when its repetitions have taken this many seconds, and were [`LEAST`] or more.
const ENOUGH: f64 = 10.0;
/// The fewest repetitions.
const LEAST: usize = 3;

impl Study for Figure9 {
    fn about(&self) -> About {
        About::of(
            "grace-fig9",
            "latency of compression and decompression by size of the input, in the survey (Figure \
             9)",
            paper::CITATION,
        )
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        None
    }

    /// Times the compressors, which takes minutes.
    fn report(
        &self,
        results: &Results<'_>,
        progress: &dyn Progress,
    ) -> Result<Report, TestbedError> {
        let mut all = Vec::new();
        for elements in ELEMENTS {
            for spec in &paper::specs() {
                if progress.stop() {
                    let done = format!("{} measurements are done", all.len());
                    return Err(TestbedError::Stopped(done));
                }
                progress.note(&format!("{spec}, {elements} elements"));
                all.push(Latency::measure(spec, elements, REPETITIONS)?);
            }
        }
        let grid = grid(&all);
        let text = format!(
            "{}.\n\nMedian of {REPETITIONS} repetitions [least–greatest], fewer where they would take more than {ENOUGH} \
             seconds, on one core.\n\n{}",
            paper::CITATION,
            grid.markdown(),
        );
        let charts: Charts = vec![("latency.svg".to_owned(), Box::new(chart(&all)))];
        Ok(page(self, results.command, &text, &charts, vec![grid.terminal()]))
    }
}

/// What one compressor took on one size.
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
        let mut once = || {
            let start = std::time::Instant::now();
            bench.encode()?;
            bench.decode()?;
            Ok(black_box(start.elapsed().as_secs_f64()))
        };
        let failed = |error: gradwire::Error| TestbedError::Config(format!("{spec}: {error}"));
        once().map_err(failed)?;
        let mut seconds: Vec<f64> = Vec::with_capacity(repetitions);
        while seconds.len() < LEAST.min(repetitions)
            || (seconds.len() < repetitions && seconds.iter().sum::<f64>() < ENOUGH)
        {
            seconds.push(once().map_err(failed)?);
        }
        seconds.sort_by(f64::total_cmp);
        Ok(Self { compressor: spec.to_string(), elements, seconds })
    }

    fn at(&self, part: f64) -> f64 {
        self.seconds[((self.seconds.len() - 1) as f64 * part).round() as usize]
    }
}

/// Median, least and greatest latency by compressor and size.
fn grid(all: &[Latency]) -> Grid {
    let mut sizes: Vec<usize> = all.iter().map(|one| one.elements).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let head = sizes.iter().map(|&size| format!("{} MB", significant(4e-6 * size as f64)));
    let mut grid =
        Grid::new(std::iter::once("compressor".to_owned()).chain(head).collect::<Vec<_>>());
    for name in names(all) {
        let mut cells = vec![name.to_owned()];
        for &size in &sizes {
            let one = all.iter().find(|one| one.compressor == name && one.elements == size);
            cells.push(one.map_or_else(String::new, |one| {
                let [median, least, greatest] =
                    [0.5, 0.0, 1.0].map(|part| significant(1e3 * one.at(part)));
                format!("{median} ms [{least}–{greatest}]")
            }));
        }
        grid.push(cells);
    }
    grid
}

/// Latency over size: a line for each compressor through its medians, with bars from the least to the greatest.
fn chart(all: &[Latency]) -> Chart {
    let series = names(all).into_iter().enumerate().map(|(colour, name)| {
        let of = all.iter().filter(|one| one.compressor == name);
        let points = of.map(|one| {
            let [y, low, high] = [0.5, 0.0, 1.0].map(|part| 1e3 * one.at(part));
            Point { x: 4e-6 * one.elements as f64, y, low, high }
        });
        Series { label: name.to_owned(), points: points.collect(), colour, dashed: false }
    });
    Chart {
        title: "Compression and decompression".to_owned(),
        x: ("MB of input".to_owned(), Scale::Log),
        y: ("ms".to_owned(), Scale::Log),
        series: series.collect(),
    }
}

/// The compressors, in the order of first appearance.
fn names(all: &[Latency]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for one in all {
        if !names.contains(&one.compressor.as_str()) {
            names.push(&one.compressor);
        }
    }
    names
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
        let text = grid(&all).markdown();
        assert!(text.contains("2.00 ms [1.00–9.00]") && text.contains("10.0 MB"), "{text}");
        let chart = chart(&all);
        assert_eq!(chart.series.len(), 2);
        let point = chart.series[0].points[0];
        let found = [point.x, point.y, point.low, point.high];
        let expected = [1.0, 2.0, 1.0, 9.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    }
}
