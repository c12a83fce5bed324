//! Figures 6, 7 and 12 of the survey: quality against throughput on several links, and against
//! volume.

use super::paper::{self, BENCHMARKS, METHODS};
use crate::TestbedError;
use crate::figures::{quality_axis, shown};
use crate::format::{bandwidth, file_name, significant, times};
use crate::plot::{Chart, Point, Scale, Series};
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{
    Charts, Report, Results, Study, by_exchange, by_momentum, chart, schedules,
};
use crate::summary::tables::{difference, quality};
use crate::summary::{Row, Summary};
use crate::table::Table;

/// Figure 6.
pub(crate) const FIGURE_6: Study = Study {
    id: "grace-fig6",
    summary: "quality against throughput by link and against volume in the survey (Figures 6, 7 and 12; --row \
              resnet20, densenet40, resnet9, vgg16, ncf, lstm or unet)",
    citation: paper::CITATION,
    rows: &paper::NAMES,
    fixed: &["exchange"],
    experiment: Some(|row| {
        let compressors = schedules(METHODS.map(|(_, spec)| spec));
        BENCHMARKS[row].experiment().with(|e| e.compressors = compressors)
    }),
    variants: |_, experiment, _| by_momentum(experiment).iter().flat_map(by_exchange).collect(),
    report: |results, _| report(results, None),
    ..Study::PLAIN
};

/// The page of Figure 6. With plain SGD it also shows the learning rates of methods that send
/// signs.
pub(super) fn report(
    results: &Results<'_>,
    sign_rates: Option<[&str; 2]>,
) -> Result<Report, TestbedError> {
    let experiment = results.experiment;
    let (full, summary) = results.summarized()?;
    let mut charts = charts(&summary);
    charts.extend(charts_over_steps(&summary, &full));
    let setup = BENCHMARKS[results.row].setup(&full, false, sign_rates);
    let compared =
        |spec: &str| experiment.compressors.iter().any(|schedule| schedule.to_string() == spec);
    let table = table(&summary, compared);
    let findings = Findings::of_one_setup("Measured", table, &summary, charts, setup);
    Ok(findings.report(results))
}

/// Quality, volume, and throughput by link of each `compared` method. A method without a finished
/// run has a row that says so.
fn table(summary: &Summary, compared: impl Fn(&str) -> bool) -> Table {
    let methods = METHODS.into_iter().filter(|(_, spec)| compared(spec));
    let rows: Vec<_> = methods.map(|(name, spec)| (name, spec, summary.row(spec))).collect();
    let cell = |row: Option<&Row>, cell: &dyn Fn(&Row) -> Option<String>| match row {
        Some(row) => cell(row).unwrap_or_default(),
        None => "–".to_owned(),
    };
    let metric = summary.metric;
    let mut columns = Table::of(&rows)
        .column("method", |(name, ..)| name)
        .column("compressor", |(_, spec, _)| spec)
        .column(metric.name(), |(.., row)| match row {
            Some(row) => quality(metric, &row.quality),
            None => "no result".to_owned(),
        })
        .column("against none", |(.., row)| {
            cell(*row, &|row| row.difference.map(|value| difference(metric, &value)))
        })
        .column("volume", |(.., row)| {
            cell(*row, &|row| Some(format!("{} %", significant(100.0 / row.ratio))))
        });
    for (at, link) in summary.links.iter().enumerate() {
        columns = columns.column(bandwidth(link.bits_per_second), |(.., row)| {
            cell(*row, &|row| row.on_links[at].speedup.map(times))
        });
    }
    columns.table()
}

/// Quality against throughput on each link, and against volume.
fn charts(summary: &Summary) -> Charts {
    let throughput = summary.links.iter().enumerate().map(|(at, link)| {
        let rate = bandwidth(link.bits_per_second);
        let title = format!("Quality and throughput at {rate}");
        let speed = |row: &Row| row.on_links[at].speedup;
        let scatter = scatter(summary, title, "throughput relative to none", speed);
        chart(format!("throughput-{}.svg", file_name(&rate)), scatter)
    });
    let (title, x) = ("Quality and volume".to_owned(), "volume relative to none");
    let volume = scatter(summary, title, x, |row| Some(1.0 / row.ratio));
    throughput.chain([chart("volume.svg", volume)]).collect()
}

/// Quality over another figure: a point for each compressor.
fn scatter(
    summary: &Summary,
    title: String,
    x: &str,
    value: impl Fn(&Row) -> Option<f64>,
) -> Chart {
    let metric = summary.metric;
    let lines = summary.rows.iter().enumerate().filter_map(|(colour, row)| {
        let [y, low, high] =
            [row.quality.mean, row.quality.min, row.quality.max].map(|value| shown(metric, value));
        let point = Point { x: value(row)?, y, low, high };
        Some(Series::new(&row.compressor, colour, vec![point]))
    });
    Chart::new(title, (x, Scale::Log), quality_axis(metric), lines)
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::{Exchange, Link};

    use super::*;
    use crate::experiment::known;
    use crate::summary::summarize;
    use crate::synthetic;

    #[test]
    fn a_point_for_each_compressor() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let summary = summarize(&runs, &[Link::mbit(0.001)]).unwrap();
        let names: Vec<String> = charts(&summary).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].starts_with("throughput-") && names[1] == "volume.svg", "{names:?}");
        let chart = scatter(&summary, String::new(), "", |row| Some(1.0 / row.ratio));
        // 300 bytes against 8000.
        assert!((chart.series[1].points[0].x - 300.0 / 8000.0).abs() < 1e-12);
        assert!((chart.series[1].points[0].y - 91.0).abs() < 1e-9);
    }

    #[test]
    fn what_adds_is_reduced_and_the_rest_gathered() {
        let variants = (FIGURE_6.variants)(0, &FIGURE_6.experiment.unwrap()(0), None);
        assert_eq!(variants.len(), 3);
        let ids = |at: usize| -> Vec<&str> {
            variants[at].compressors.iter().map(|schedule| schedule.first().entry().id).collect()
        };
        assert_eq!(variants[0].exchange, Exchange::AllReduce.into());
        assert_eq!(ids(0), ["none", "randomk", "powersgd", "gradzip"]);
        assert_eq!(variants[1].exchange, Exchange::AllGather.into());
        assert!(
            ids(1).contains(&"signsgd")
                && ids(1).contains(&"dryden")
                && ids(1).len() == METHODS.len() - 6
        );
        // Their memories apply the momentum.
        assert_eq!((ids(2), variants[2].optimizer), (vec!["signum", "dgc"], known("sgd")));
    }
}
