//! The charts of a comparison, modelled on the figures of the 3LC paper (arXiv:1802.07389, section
//! 5).

use gradwire_exchange::Link;
use gradwire_train::{Metric, RunRecord, StepRecord};

use crate::format;
use crate::plot::{Chart, Point, Scale, Series, Unit};
use crate::results::thin;
use crate::step_time::{Common, step_seconds};
use crate::summary::{Spread, by_compressor};

/// The most points of a line over steps.
const POINTS: usize = 60;

/// The horizontal axis of charts over steps.
pub(crate) const STEPS: (&str, Scale) = ("step", Scale::Linear);

/// A line for each compressor, through the points of its runs.
pub(crate) fn lines(
    runs: &[RunRecord],
    points: impl Fn(&[&RunRecord]) -> Vec<Point>,
) -> Vec<Series> {
    let groups = by_compressor(runs).into_iter().enumerate();
    groups
        .map(|(colour, group)| Series::new(&group[0].compressor, colour, points(&group)))
        .collect()
}

/// Quality over modelled training time on `link`, from the evaluations of runs of one length.
pub fn quality_over_time(runs: &[RunRecord], link: Link) -> Chart {
    let common = Common::of(runs);
    let lines = lines(runs, |group| {
        let step = step_seconds(group[0], common, link);
        evaluations(group).into_iter().map(|p| Point { x: p.x * step, ..p }).collect()
    });
    time_chart(link, metric(runs), lines)
}

/// Final quality over modelled training time on `link`: one point for each number of steps, from
/// separate runs (Figures 4 to 6 and 8).
pub fn quality_by_length(runs: &[RunRecord], link: Link) -> Chart {
    let common = Common::of(runs);
    let lines = lines(runs, |group| {
        let mut lengths: Vec<u64> = group.iter().map(|run| run.steps).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let point = |steps| {
            let runs: Vec<_> = group.iter().filter(|run| run.steps == steps).collect();
            let seconds = steps as f64 * step_seconds(runs[0], common, link);
            spread(runs.iter().map(|run| shown(run.metric, run.quality)), seconds)
        };
        lengths.into_iter().filter_map(point).collect()
    });
    time_chart(link, metric(runs), lines)
}

/// Training loss over steps (Figure 7, left), averaged over seeds and over windows of steps.
pub fn loss(runs: &[RunRecord]) -> Chart {
    let lines = lines(runs, |group| over_steps(group, |step| step.loss));
    Chart::new("Training loss", STEPS, ("loss", Scale::Log), lines)
}

/// Test accuracy, or perplexity, over steps (Figure 7, right): mean over seeds, bars from the least
/// to the greatest.
pub fn quality(runs: &[RunRecord]) -> Chart {
    let metric = metric(runs);
    let title = format!("Test {}", metric.name());
    Chart::new(title, STEPS, quality_axis(metric), lines(runs, evaluations))
}

/// Test error, or perplexity, over the bytes a worker had sent (Figures 5 to 8, right, of the SBC
/// paper): mean over seeds.
pub fn quality_over_bytes(runs: &[RunRecord]) -> Chart {
    let metric = metric(runs);
    let lines = lines(runs, |group| {
        let points = evaluations(group).into_iter();
        points.map(|p| Point { x: sent_by(group[0], p.x), ..lacking(metric, p) }).collect()
    });
    let (x, y) = (("sent by a worker", Scale::Log), (lacking_axis(metric).0, Scale::Log));
    Chart::new("Quality and bytes sent", x, y, lines).across(Unit::Bytes)
}

/// Final test error, or perplexity, over the compression rate: 32 bits per parameter and step over
/// the bits that a worker sent (Figure 4 of the AdaComp paper). Each method is a line, and each of
/// its settings a point.
pub fn by_rate(runs: &[RunRecord]) -> Chart {
    let metric = metric(runs);
    let x = ("times less than 32 bits per parameter", Scale::Log);
    let mut chart = Chart::new("Quality by compression rate", x, lacking_axis(metric), []);
    for group in by_compressor(runs) {
        let method = group[0].compressor.split(':').next().unwrap_or_default();
        let rate = 32.0 * group[0].exchange.receivers(group[0].workers) / group[0].bits_up();
        let quality = spread(group.iter().map(|run| shown(metric, run.quality)), rate);
        quality.into_iter().for_each(|point| chart.add(method, lacking(metric, point)));
    }
    chart
}

/// The bytes that a worker had sent after `steps` steps. In a thinned trace each entry is the mean
/// of the steps since the entry before it.
fn sent_by(run: &RunRecord, steps: f64) -> f64 {
    let (mut done, mut sent) = (0.0, 0.0);
    for record in &run.trace {
        let end = (record.step + 1) as f64;
        sent += record.bytes_up * (end.min(steps) - done).max(0.0);
        done = end;
    }
    // Steps without an entry count as an average step of the run.
    if done < steps { run.bytes_up * steps / run.steps as f64 } else { sent }
}

/// Bits per model parameter over steps: pushes solid, pulls dashed (Figure 9).
pub fn bits_per_value(runs: &[RunRecord]) -> Chart {
    let bits = |bytes: fn(&StepRecord) -> f64| {
        lines(runs, |group| {
            let bits = 8.0 / group[0].parameters as f64;
            let points = over_steps(group, bytes).into_iter();
            points.map(|p| Point::new(p.x, p.y * bits)).collect()
        })
    };
    let received = bits(|step| step.bytes_down).into_iter();
    let received = received.map(|line| Series { label: String::new(), dashed: true, ..line });
    let both = bits(|step| step.bytes_up).into_iter().zip(received).flat_map(<[Series; 2]>::from);
    let title = "Bits per parameter: sent (solid), received (dashed)";
    Chart::new(title, STEPS, ("bits", Scale::Log), both)
}

fn time_chart(link: Link, metric: Metric, lines: Vec<Series>) -> Chart {
    let link = format::link(&link);
    let title = format!("Time and {} at {link} (modelled)", metric.name());
    let x = ("training time, modelled", Scale::Log);
    Chart::new(title, x, quality_axis(metric), lines).across(Unit::Seconds)
}

/// The metric of runs on the same data.
fn metric(runs: &[RunRecord]) -> Metric {
    runs.first().map_or_else(Metric::default, |run| run.metric)
}

/// A quality in the unit of charts: fractions in per cent.
pub(crate) fn shown(metric: Metric, quality: f64) -> f64 {
    if metric.is_fraction() { quality * 100.0 } else { quality }
}

pub(crate) fn quality_axis(metric: Metric) -> (&'static str, Scale) {
    match metric {
        Metric::Accuracy => ("accuracy (%)", Scale::Linear),
        Metric::Iou => ("IoU (%)", Scale::Linear),
        Metric::HitRate => ("hit rate at 10 (%)", Scale::Linear),
        Metric::Perplexity => ("perplexity", Scale::Log),
    }
}

/// 100 % minus a quality in per cent; a perplexity does not change.
fn lacking(metric: Metric, point: Point) -> Point {
    let Point { x, y, low, high } = point;
    if !metric.is_fraction() {
        return point;
    }
    Point { x, y: 100.0 - y, low: 100.0 - high, high: 100.0 - low }
}

fn lacking_axis(metric: Metric) -> (&'static str, Scale) {
    match metric {
        Metric::Accuracy => ("error (%)", Scale::Linear),
        Metric::Iou => ("100 % − IoU (%)", Scale::Linear),
        Metric::HitRate => ("misses (%)", Scale::Linear),
        Metric::Perplexity => ("perplexity", Scale::Log),
    }
}

/// Quality at each evaluated step, over the seeds of one compressor.
fn evaluations(group: &[&RunRecord]) -> Vec<Point> {
    let at_step = |step| {
        let all = group.iter().flat_map(|run| &run.evaluations);
        let qualities =
            all.filter(|one| one.step == step).map(|one| shown(one.metric, one.quality));
        spread(qualities, step as f64)
    };
    group[0].evaluations.iter().filter_map(|evaluation| at_step(evaluation.step)).collect()
}

/// A value of each step, averaged over windows of steps and over the seeds of one compressor.
fn over_steps(group: &[&RunRecord], figure: fn(&StepRecord) -> f64) -> Vec<Point> {
    let traces: Vec<Vec<StepRecord>> = group.iter().map(|run| thin(run, POINTS).trace).collect();
    let shortest = traces.iter().map(Vec::len).min().unwrap_or(0);
    (0..shortest)
        .map(|at| {
            let sum: f64 = traces.iter().map(|trace| figure(&trace[at])).sum();
            Point::new(traces[0][at].step as f64, sum / traces.len() as f64)
        })
        .collect()
}

/// The mean of values as a point at `x`, with a bar from the least to the greatest; `None` of no
/// values.
fn spread(values: impl Iterator<Item = f64>, x: f64) -> Option<Point> {
    let Spread { mean, min, max, .. } = Spread::of(&values.collect::<Vec<_>>())?;
    Some(Point { x, y: mean, low: min, high: max })
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::Exchange;

    use super::*;
    use crate::synthetic;

    #[test]
    fn lines_are_means_over_seeds() {
        let runs = [synthetic::run("3lc", 1), synthetic::run("3lc", 3)];
        let chart = quality(&runs);
        assert_eq!(chart.series.len(), 1);
        let last = chart.series[0].points[1];
        assert_eq!(last.x, 10.0);
        // 91 and 93 per cent.
        assert!((last.y - 92.0).abs() < 1e-9);
        assert!((last.low - 91.0).abs() < 1e-9 && (last.high - 93.0).abs() < 1e-9);
    }

    #[test]
    fn perplexities_are_shown_as_they_are() {
        let chart = quality(&[synthetic::text_run("3lc", 4.0)]);
        assert_eq!((chart.series[0].points[1].y, chart.y.1), (4.0, Scale::Log));
        assert_eq!((chart.title.as_str(), chart.y.0.as_str()), ("Test perplexity", "perplexity"));
    }

    #[test]
    fn errors_are_shown_over_bytes_and_compression_rates() {
        let near = |chart: &Chart, at: usize, expected: [f64; 4]| {
            let Point { x, y, low, high } = chart.series[0].points[at];
            let found = [x, y, low, high];
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        };
        let runs = [1, 3].map(|seed| synthetic::run("3lc:s=1.5", seed));
        // 91 and 93 per cent, and 20 less after five of ten steps of 100 bytes.
        let over_bytes = quality_over_bytes(&runs);
        near(&over_bytes, 0, [500.0, 28.0, 27.0, 29.0]);
        near(&over_bytes, 1, [1000.0, 8.0, 7.0, 9.0]);
        // 32 bits over 0.8.
        let rates = by_rate(&runs);
        assert_eq!(rates.series[0].label, "3lc");
        near(&rates, 0, [40.0, 8.0, 7.0, 9.0]);
        near(&by_rate(&[synthetic::text_run("3lc", 4.0)]), 0, [40.0, 4.0, 4.0, 4.0]);
        // Each of four workers sends to three others.
        let [mut gathered, _] = runs;
        gathered.exchange = Exchange::AllGather;
        near(&by_rate(&[gathered]), 0, [120.0, 9.0, 9.0, 9.0]);
    }

    #[test]
    fn bytes_are_counted_within_windows_and_beyond_the_trace() {
        let mut run = synthetic::run("3lc", 1);
        run.trace.iter_mut().for_each(|step| step.bytes_up = 10.0 * step.step as f64);
        // Windows of five steps, with 20 and 70 bytes a step.
        let thinned = thin(&run, 2);
        let sent = [2.0, 5.0, 7.0, 10.0].map(|steps| sent_by(&thinned, steps));
        assert_eq!(sent, [40.0, 100.0, 240.0, 450.0]);
        // 1000 bytes in ten steps.
        run.trace.truncate(2);
        assert_eq!((sent_by(&run, 2.0), sent_by(&run, 5.0)), (10.0, 500.0));
    }

    #[test]
    fn bits_are_bytes_over_parameters() {
        let chart = bits_per_value(&[synthetic::run("3lc", 1)]);
        // 100 bytes up and 200 down over 1000 parameters.
        assert!((chart.series[0].points[0].y - 0.8).abs() < 1e-12);
        assert!((chart.series[1].points[0].y - 1.6).abs() < 1e-12);
        assert!(chart.series[1].dashed);
    }

    #[test]
    fn a_slower_link_moves_the_same_accuracy_to_the_right() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let at = |mbit: f64| quality_over_time(&runs, Link::mbit(mbit)).series;
        let (slow, fast) = (at(1.0), at(1000.0));
        assert!(slow[0].points[1].x > 2.0 * fast[0].points[1].x);
        assert!(slow[0].points[1].x > slow[1].points[1].x);
        assert_eq!(slow[0].points[1].y, fast[0].points[1].y);
    }

    #[test]
    fn each_length_of_run_is_a_point() {
        let mut half = synthetic::run("3lc", 1);
        half.steps = 5;
        half.quality = 0.5;
        let chart = quality_by_length(&[synthetic::run("3lc", 1), half], Link::mbit(10.0));
        let qualities: Vec<f64> = chart.series[0].points.iter().map(|p| p.y.round()).collect();
        assert_eq!(qualities, [50.0, 91.0]);
    }
}
