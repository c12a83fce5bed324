//! The charts of a comparison, after the figures of the 3LC paper (arXiv:1802.07389, section 5).

use gradwire_exchange::Link;
use gradwire_train::{Metric, RunRecord, StepRecord};

use crate::format::bandwidth;
use crate::plot::{Chart, Point, Scale, Series};
use crate::results::thin;
use crate::summary::{Common, Spread, by_compressor, step_seconds};

/// The most points of a line over steps.
const POINTS: usize = 60;

/// Quality over modelled training time on `link`, from the evaluations of runs of one length.
pub fn quality_over_time(runs: &[RunRecord], link: Link) -> Chart {
    let common = Common::of(runs);
    let mut series = Vec::new();
    for (colour, group) in by_compressor(runs).iter().enumerate() {
        let step = step_seconds(group[0], common, link);
        let points = evaluations(group).into_iter().map(|p| Point { x: p.x * step, ..p });
        series.push(line(group[0], colour, points.collect()));
    }
    time_chart(link, metric(runs), series)
}

/// Final quality over modelled training time on `link`: one point for each number of steps, each a
/// run of its own (Figures 4 to 6 and 8).
pub fn quality_by_length(runs: &[RunRecord], link: Link) -> Chart {
    let common = Common::of(runs);
    let mut series = Vec::new();
    for (colour, group) in by_compressor(runs).iter().enumerate() {
        let mut lengths: Vec<u64> = group.iter().map(|run| run.steps).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut points = Vec::new();
        for steps in lengths {
            let runs: Vec<_> = group.iter().filter(|run| run.steps == steps).collect();
            let seconds = steps as f64 * step_seconds(runs[0], common, link);
            let qualities: Vec<f64> =
                runs.iter().map(|run| shown(run.metric, run.quality)).collect();
            points.extend(Spread::of(&qualities).map(|spread| spread.at(seconds)));
        }
        series.push(line(group[0], colour, points));
    }
    time_chart(link, metric(runs), series)
}

/// Training loss over steps (Figure 7, left), averaged over seeds and over windows of steps.
pub fn loss(runs: &[RunRecord]) -> Chart {
    let series = by_compressor(runs)
        .into_iter()
        .enumerate()
        .map(|(colour, group)| line(group[0], colour, over_steps(&group, |step| step.loss)));
    Chart {
        title: "Training loss".to_owned(),
        x: ("step".to_owned(), Scale::Linear),
        y: ("cross-entropy".to_owned(), Scale::Log),
        series: series.collect(),
    }
}

/// Test accuracy, or perplexity, over steps (Figure 7, right): mean over seeds, bars from the least to the greatest.
pub fn quality(runs: &[RunRecord]) -> Chart {
    let series = by_compressor(runs)
        .into_iter()
        .enumerate()
        .map(|(colour, group)| line(group[0], colour, evaluations(&group)));
    Chart {
        title: format!("Test {}", metric(runs).name()),
        x: ("step".to_owned(), Scale::Linear),
        y: quality_axis(metric(runs)),
        series: series.collect(),
    }
}

/// Test error, or perplexity, over the bytes a worker had sent (Figures 5 to 8, right, of the SBC
/// paper): mean over seeds.
pub fn quality_over_bytes(runs: &[RunRecord]) -> Chart {
    let metric = metric(runs);
    let series = by_compressor(runs).into_iter().enumerate().map(|(colour, group)| {
        let points = evaluations(&group).into_iter().map(|p| {
            let x = sent_by(group[0], p.x);
            match metric {
                Metric::Accuracy | Metric::Iou | Metric::HitRate => {
                    Point { x, y: 100.0 - p.y, low: 100.0 - p.high, high: 100.0 - p.low }
                }
                Metric::Perplexity => Point { x, ..p },
            }
        });
        line(group[0], colour, points.collect())
    });
    let y = match metric {
        Metric::Accuracy => "error (%)",
        Metric::Iou => "what IoU lacks (%)",
        Metric::HitRate => "misses (%)",
        Metric::Perplexity => "perplexity",
    };
    Chart {
        title: "Quality and bytes sent".to_owned(),
        x: ("bytes a worker sent".to_owned(), Scale::Log),
        y: (y.to_owned(), Scale::Log),
        series: series.collect(),
    }
}

/// Final test error, or perplexity, against how much less a worker sent than 32 bits a parameter and step
/// (Figure 4 of the AdaComp paper): a line for each method, a point for each of its settings.
pub fn by_rate(runs: &[RunRecord]) -> Chart {
    let metric = metric(runs);
    let mut series: Vec<Series> = Vec::new();
    for group in by_compressor(runs) {
        let method = group[0].compressor.split(':').next().unwrap_or_default().to_owned();
        let qualities: Vec<f64> = group.iter().map(|run| shown(metric, run.quality)).collect();
        let Some(spread) = Spread::of(&qualities) else { continue };
        let receivers = group[0].exchange.receivers(group[0].workers);
        let point = spread.at(32.0 * receivers / group[0].bits_up());
        let point = match metric {
            Metric::Accuracy | Metric::Iou | Metric::HitRate => Point {
                y: 100.0 - point.y,
                low: 100.0 - point.high,
                high: 100.0 - point.low,
                ..point
            },
            Metric::Perplexity => point,
        };
        match series.iter_mut().find(|line| line.label == method) {
            Some(line) => line.points.push(point),
            None => {
                let colour = series.len();
                series.push(Series { label: method, points: vec![point], colour, dashed: false });
            }
        }
    }
    series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    let y = match metric {
        Metric::Accuracy => ("error (%)".to_owned(), Scale::Linear),
        Metric::Iou => ("what IoU lacks (%)".to_owned(), Scale::Linear),
        Metric::HitRate => ("misses (%)".to_owned(), Scale::Linear),
        Metric::Perplexity => ("perplexity".to_owned(), Scale::Log),
    };
    Chart {
        title: "Quality by compression rate".to_owned(),
        x: ("times less than 32 bits a parameter".to_owned(), Scale::Log),
        y,
        series,
    }
}

/// Bytes a worker had sent after `steps` steps. A trace may be thinned, each entry the mean of the
/// steps up to its own.
fn sent_by(run: &RunRecord, steps: f64) -> f64 {
    let (mut done, mut sent) = (0.0, 0.0);
    for record in &run.trace {
        let end = (record.step + 1) as f64;
        sent += record.bytes_up * (end.min(steps) - done).max(0.0);
        done = end;
    }
    // Where the trace is short of steps, they were like the rest.
    if done < steps { run.bytes_up * steps / run.steps as f64 } else { sent }
}

/// Bits per model parameter over steps: pushes solid, pulls dashed (Figure 9).
pub fn bits_per_value(runs: &[RunRecord]) -> Chart {
    let mut series = Vec::new();
    for (colour, group) in by_compressor(runs).iter().enumerate() {
        let bits = 8.0 / group[0].parameters as f64;
        let sent = over_steps(group, |step| step.bytes_up);
        let received = over_steps(group, |step| step.bytes_down);
        let scale = |points: Vec<Point>| -> Vec<Point> {
            points.into_iter().map(|p| Point::new(p.x, p.y * bits)).collect()
        };
        series.push(line(group[0], colour, scale(sent)));
        series.push(Series {
            label: String::new(),
            dashed: true,
            ..line(group[0], colour, scale(received))
        });
    }
    Chart {
        title: "Bits per parameter: sent (solid), received (dashed)".to_owned(),
        x: ("step".to_owned(), Scale::Linear),
        y: ("bits".to_owned(), Scale::Log),
        series,
    }
}

fn time_chart(link: Link, metric: Metric, series: Vec<Series>) -> Chart {
    let link = bandwidth(link.bits_per_second);
    Chart {
        title: format!("Time and {} at {link} (modelled)", metric.name()),
        x: ("training time (s, modelled)".to_owned(), Scale::Log),
        y: quality_axis(metric),
        series,
    }
}

/// The metric of runs on the same data.
fn metric(runs: &[RunRecord]) -> Metric {
    runs.first().map_or_else(Metric::default, |run| run.metric)
}

/// A quality as charts show it: accuracy in per cent.
pub(crate) fn shown(metric: Metric, quality: f64) -> f64 {
    match metric {
        Metric::Accuracy | Metric::Iou | Metric::HitRate => quality * 100.0,
        Metric::Perplexity => quality,
    }
}

pub(crate) fn quality_axis(metric: Metric) -> (String, Scale) {
    match metric {
        Metric::Accuracy => ("accuracy (%)".to_owned(), Scale::Linear),
        Metric::Iou => ("IoU (%)".to_owned(), Scale::Linear),
        Metric::HitRate => ("hit rate at 10 (%)".to_owned(), Scale::Linear),
        Metric::Perplexity => ("perplexity".to_owned(), Scale::Log),
    }
}

fn line(run: &RunRecord, colour: usize, points: Vec<Point>) -> Series {
    Series { label: run.compressor.clone(), points, colour, dashed: false }
}

/// Quality at each evaluated step, over the seeds of one compressor.
fn evaluations(group: &[&RunRecord]) -> Vec<Point> {
    let steps = group[0].evaluations.iter().map(|evaluation| evaluation.step);
    steps
        .filter_map(|step| {
            let qualities: Vec<f64> = group
                .iter()
                .flat_map(|run| &run.evaluations)
                .filter(|evaluation| evaluation.step == step)
                .map(|evaluation| shown(evaluation.metric, evaluation.quality))
                .collect();
            Spread::of(&qualities).map(|spread| spread.at(step as f64))
        })
        .collect()
}

/// A figure of each step, averaged over windows of steps and over the seeds of one compressor.
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

impl Spread {
    /// The mean as a point at `x`, with a bar from the least to the greatest.
    fn at(&self, x: f64) -> Point {
        Point { x, y: self.mean, low: self.min, high: self.max }
    }
}

#[cfg(test)]
mod tests {
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
