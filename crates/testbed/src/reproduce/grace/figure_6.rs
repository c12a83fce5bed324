//! Figures 6, 7 and 12 of the survey: quality against throughput on several links, and against volume.

use gradwire_train::CompressionSchedule;

use super::paper::{self, BENCHMARKS, Differs, METHODS};
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::figures::{quality_axis, shown};
use crate::format::{bandwidth, file_name, significant, times};
use crate::plot::{Chart, Point, Scale, Series};
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{About, Charts, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::summary::{Row, Summary};
use crate::table::{Grid, difference, quality};

/// Figure 6.
pub(crate) struct Figure6;

impl Study for Figure6 {
    fn about(&self) -> About {
        About {
            rows: paper::names(),
            fixed: &["exchange"],
            ..About::of(
                "grace-fig6",
                "quality against throughput by link and against volume in the survey (Figures 6, \
                 7 and 12; --row resnet20, densenet40, resnet9, vgg16, ncf, lstm or unet)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, row: usize) -> Option<Experiment> {
        let compressors = plans(METHODS.map(|(_, spec)| spec));
        Some(BENCHMARKS[row].experiment().with(|e| e.compressors = compressors))
    }

    fn variants(&self, _: usize, experiment: &Experiment, _: Option<usize>) -> Vec<Experiment> {
        paper::by_exchange(experiment)
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        Ok(findings(results, Differs::Nothing)?.report(self, results))
    }
}

/// What is found of each method: here, and with plain SGD.
pub(super) fn findings(
    results: &Results<'_>,
    differs: Differs<'_>,
) -> Result<Findings, TestbedError> {
    let experiment = results.experiment;
    let (full, summary) = results.summarized()?;
    let mut charts = charts(&summary);
    charts.extend(charts_over_steps(&summary, &full));
    let setup = BENCHMARKS[results.row].setup(&full[0], experiment.seeds.len(), differs);
    let table = table(&summary, &experiment.compressors);
    Ok(Findings::of_one_setup("Measured", table, &summary, charts, setup))
}

/// Quality, volume, and throughput by link of each method.
pub(super) fn table(summary: &Summary, compared: &[CompressionSchedule]) -> Grid {
    let mut head = vec![
        "method".to_owned(),
        "compressor".to_owned(),
        summary.metric.name().to_owned(),
        "against none".to_owned(),
        "volume".to_owned(),
    ];
    head.extend(summary.links.iter().map(|link| bandwidth(link.bits_per_second)));
    let mut grid = Grid::new(head);
    for (name, spec) in METHODS
        .into_iter()
        .filter(|(_, spec)| compared.iter().any(|plan| plan.to_string() == *spec))
    {
        let Some(row) = summary.rows.iter().find(|row| row.compressor == spec) else {
            grid.push(missing(name, spec, grid.head.len()));
            continue;
        };
        let mut cells = vec![
            name.to_owned(),
            spec.to_owned(),
            quality(summary.metric, &row.quality),
            row.difference.map_or_else(String::new, |value| difference(summary.metric, value)),
            format!("{} %", significant(100.0 / row.ratio)),
        ];
        cells.extend(row.on_links.iter().map(|on| on.speedup.map_or_else(String::new, times)));
        grid.push(cells);
    }
    grid
}

/// The row of a method whose run was not made, or ended without a result.
fn missing(name: &str, spec: &str, cells: usize) -> Vec<String> {
    let mut row = vec![name.to_owned(), spec.to_owned(), "no result".to_owned()];
    row.resize(cells, "–".to_owned());
    row
}

/// Quality against throughput on each link, and against volume.
fn charts(summary: &Summary) -> Charts {
    let mut charts: Charts = Vec::new();
    for (at, link) in summary.links.iter().enumerate() {
        let rate = bandwidth(link.bits_per_second);
        let speed = |row: &Row| row.on_links[at].speedup;
        let title = format!("Quality and throughput at {rate}");
        let chart = scatter(summary, title, "throughput relative to none".to_owned(), speed);
        charts.push((format!("throughput-{}.svg", file_name(&rate)), Box::new(chart)));
    }
    let volume = |row: &Row| Some(1.0 / row.ratio);
    let (title, x) = ("Quality and volume".to_owned(), "volume relative to none".to_owned());
    charts.push(("volume.svg".to_owned(), Box::new(scatter(summary, title, x, volume))));
    charts
}

/// Quality over something else: a point for each compressor.
fn scatter(
    summary: &Summary,
    title: String,
    x: String,
    value: impl Fn(&Row) -> Option<f64>,
) -> Chart {
    let metric = summary.metric;
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
    use gradwire_exchange::{Exchange, Link};

    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

    #[test]
    fn a_point_for_each_compressor() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let summary = summarize(&runs, &[Link::mbit(0.001)]).unwrap();
        let names: Vec<String> = charts(&summary).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].starts_with("throughput-") && names[1] == "volume.svg", "{names:?}");
        let chart = scatter(&summary, String::new(), String::new(), |row| Some(1.0 / row.ratio));
        // 300 bytes against 8000.
        assert!((chart.series[1].points[0].x - 300.0 / 8000.0).abs() < 1e-12);
        assert!((chart.series[1].points[0].y - 91.0).abs() < 1e-9);
    }

    #[test]
    fn what_adds_is_reduced_and_the_rest_gathered() {
        let variants = Figure6.variants(0, &Figure6.experiment(0).unwrap(), None);
        assert_eq!(variants.len(), 2);
        let ids = |at: usize| -> Vec<&str> {
            variants[at].compressors.iter().map(|plan| plan.first().entry().id).collect()
        };
        assert_eq!(variants[0].exchange, Exchange::AllReduce);
        assert_eq!(ids(0), ["none", "randomk", "powersgd", "gradzip"]);
        assert_eq!(variants[1].exchange, Exchange::AllGather);
        assert!(
            ids(1).contains(&"signsgd")
                && ids(1).contains(&"dryden")
                && ids(1).len() == METHODS.len() - 4
        );
    }
}
