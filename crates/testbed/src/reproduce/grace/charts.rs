//! The survey's figures as charts.

use gradwire_exchange::Link;
use gradwire_train::run::Metric;

use crate::figures::{quality_axis, shown};
use crate::format::bandwidth;
use crate::plot::{Chart, Point, Scale, Series};
use crate::scaling::Scaled;
use crate::summary::{Row, Summary};

/// Throughput by workers: a line for each compressor, and a dashed one for its bound.
pub(super) fn by_workers(all: &[Scaled], link: Link) -> Chart {
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

/// Quality over something else: a point for each compressor.
pub(super) fn scatter(
    summary: &Summary,
    title: String,
    x: String,
    value: impl Fn(&Row) -> Option<f64>,
) -> Chart {
    let metric: Metric = summary.metric;
    let points = summary.rows.iter().enumerate().filter_map(|(colour, row)| {
        let at = |quality: f64| shown(metric, quality);
        let (y, low, high) = (at(row.quality.mean), at(row.quality.min), at(row.quality.max));
        let point = Point { x: value(row)?, y, low, high };
        Some(Series { label: row.compressor.clone(), points: vec![point], colour, dashed: false })
    });
    Chart { title, x: (x, Scale::Log), y: quality_axis(metric), series: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::Study;
    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

    #[test]
    fn a_point_for_each_compressor() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let summary = summarize(&runs, &[Link::mbit(0.001)]).unwrap();
        let charts = Study::ALL[0].charts(&summary, &runs).unwrap();
        let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].starts_with("throughput-") && names[1] == "volume.svg", "{names:?}");
        let chart = scatter(&summary, String::new(), String::new(), |row| Some(1.0 / row.ratio));
        // 300 bytes against 8000.
        assert!((chart.series[1].points[0].x - 300.0 / 8000.0).abs() < 1e-12);
        assert!((chart.series[1].points[0].y - 91.0).abs() < 1e-9);
    }
}
