//! The end of all runs in one chart: quality, with intervals, against bytes or time.

use gradwire_train::Metric;

use crate::format::{bandwidth, significant};
use crate::plot::{Band, Mark, Point, Scale, Scatter, Unit};
use crate::summary::{Row, Summary};
use crate::verdict;

/// Points that are further from none than this many limits are left out, and named below: beside
/// them all others would coincide.
const FAR: f64 = 10.0;

/// Quality against the bytes of a step; `None` if no point can be shown.
pub(crate) fn by_bytes(summary: &Summary) -> Option<Scatter> {
    let bytes = |row: &Row| (row.bytes_up + row.bytes_down) / row.steps as f64;
    let x = "sent and received, per worker and step";
    chart(summary, "Quality and bytes at the end of training".to_owned(), x, Unit::Bytes, bytes)
}

/// Quality against the modelled time of a step, for each link.
pub(crate) fn by_time(summary: &Summary) -> Vec<Scatter> {
    let of_link = |(at, link): (usize, &gradwire_exchange::Link)| {
        let title = format!("Quality and step time at {}", bandwidth(link.bits_per_second));
        let x = "time of a step, modelled";
        chart(summary, title, x, Unit::Seconds, |row| row.on_links[at].step)
    };
    summary.links.iter().enumerate().filter_map(of_link).collect()
}

/// What intervals are, and which points are left out.
pub(crate) fn caption(summary: &Summary) -> String {
    let (bars, what) = match (summary.seeds(), summary.baseline()) {
        (2.., Some(_)) => {
            ("Bars are 95 % intervals (Student's t)", " of the paired difference from none")
        }
        (2.., None) => ("Bars are 95 % intervals (Student's t)", ""),
        _ => ("One seed, which has no interval", ""),
    };
    let seeds = match summary.seeds() {
        1 => "1 seed".to_owned(),
        seeds => format!("{seeds} seeds"),
    };
    let left_out = left_out(summary);
    let left_out = match left_out.is_empty() {
        true => String::new(),
        false => {
            format!(" Much further from none, and not shown: {}.", left_out.join(", "))
        }
    };
    format!("Means over {seeds}. {bars}{what}. Bytes and quality are measured.{left_out}")
}

/// The limit of a loss of quality, in words.
pub(crate) fn limit(metric: Metric, tolerance: f64) -> String {
    match metric.is_fraction() {
        true => format!("{} points less", tolerance * 100.0),
        false => format!("a perplexity of {} more", significant(tolerance)),
    }
}

fn chart(
    summary: &Summary,
    title: String,
    x: &str,
    unit: Unit,
    cost: impl Fn(&Row) -> f64,
) -> Option<Scatter> {
    let far = left_out(summary);
    let shown = summary.rows.iter().enumerate().filter(|(_, row)| !far.contains(&row.compressor));
    let point = |(colour, row): (usize, &Row)| {
        let [y, low, high] = quality(summary, row)?;
        let point = Point { x: cost(row), y, low, high };
        Some(Mark { name: row.compressor.clone(), point, colour, on_front: false })
    };
    let mut marks: Vec<Mark> = shown.filter_map(point).collect();
    if marks.is_empty() {
        return None;
    }
    let sign = if summary.metric.is_fraction() { 1.0 } else { -1.0 };
    for at in 0..marks.len() {
        marks[at].on_front = is_on_front(&marks, at, sign);
    }
    let x = (x.to_owned(), Scale::Log);
    Some(Scatter { title, x, unit, y: axis(summary), marks, band: band(summary) })
}

/// The quality of a row minus that of none, else the quality itself, with the ends of its interval;
/// fractions in per cent. `None` if it is not comparable or not finite.
fn quality(summary: &Summary, row: &Row) -> Option<[f64; 3]> {
    let spread = match summary.baseline() {
        Some(_) => row.difference?,
        None => row.quality,
    };
    let (low, high) = spread.interval().unwrap_or((spread.mean, spread.mean));
    let factor = if summary.metric.is_fraction() { 100.0 } else { 1.0 };
    let all = [spread.mean, low, high].map(|value| value * factor);
    all.iter().all(|value| value.abs() < 1e12).then_some(all)
}

/// The label of the axis of quality.
fn axis(summary: &Summary) -> String {
    let (name, less) = (summary.metric.name(), !summary.metric.is_fraction());
    match (summary.baseline().is_some(), less) {
        (true, false) => format!("{name} minus none (points; more is better)"),
        (true, true) => format!("{name} minus none (less is better)"),
        (false, false) => format!("{name} (%; more is better)"),
        (false, true) => format!("{name} (less is better)"),
    }
}

/// The limit of a loss of quality; `None` without none.
fn band(summary: &Summary) -> Option<Band> {
    let none = summary.baseline()?;
    let tolerance = verdict::tolerance(summary.metric, none.quality.mean);
    let name = format!("limit: {}", limit(summary.metric, tolerance));
    tolerance.is_finite().then(|| match summary.metric.is_fraction() {
        true => Band { low: -100.0 * tolerance, high: 0.0, name },
        false => Band { low: 0.0, high: tolerance, name },
    })
}

/// Whether no other point is at least as good in both, and better in one.
fn is_on_front(marks: &[Mark], at: usize, sign: f64) -> bool {
    let (cost, good) = (marks[at].point.x, sign * marks[at].point.y);
    !marks.iter().any(|other| {
        let (x, y) = (other.point.x, sign * other.point.y);
        x <= cost && y >= good && (x < cost || y > good)
    })
}

/// The compressors that are far from none, unless they are most.
fn left_out(summary: &Summary) -> Vec<String> {
    let Some(band) = band(summary) else { return Vec::new() };
    let limit = FAR * (band.high - band.low);
    let is_far = |row: &&Row| quality(summary, row).is_some_and(|[mean, ..]| mean.abs() > limit);
    let far: Vec<String> =
        summary.rows.iter().filter(is_far).map(|row| row.compressor.clone()).collect();
    if 2 * far.len() < summary.rows.len() { far } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use gradwire_train::RunRecord;

    use super::*;
    use crate::synthetic;

    /// A run of a compressor with this quality and these bytes a step.
    fn run(compressor: &str, quality: f64, bytes: f64) -> RunRecord {
        let mut run = synthetic::run(compressor, 1);
        (run.quality, run.bytes_up, run.bytes_down) = (quality, 10.0 * bytes, 0.0);
        run
    }

    fn runs() -> Vec<RunRecord> {
        vec![
            run("none", 0.9, 4000.0),
            run("eden", 0.901, 500.0),
            run("int8", 0.9, 1000.0),
            run("3lc", 0.896, 100.0),
            run("sbc", 0.7, 10.0),
        ]
    }

    #[test]
    fn the_front_has_what_nothing_beats_and_wrecks_are_named_below() {
        let summary = synthetic::summary(&runs());
        let chart = by_bytes(&summary).unwrap();
        let front: Vec<&str> =
            chart.marks.iter().filter(|one| one.on_front).map(|one| &*one.name).collect();
        assert_eq!(front, ["eden", "3lc"]);
        assert_eq!(chart.marks.len(), 4);
        assert!((chart.marks[3].point.y + 0.4).abs() < 1e-9 && chart.marks[3].point.x == 100.0);
        let band = chart.band.unwrap();
        assert_eq!((band.low, band.high, &*band.name), (-0.5, 0.0, "limit: 0.5 points less"));
        assert!(
            caption(&summary).contains("from none, and not shown: sbc."),
            "{}",
            caption(&summary)
        );
        assert_eq!(by_time(&summary).len(), summary.links.len());
        // If most are far, all are shown.
        let wrecks = synthetic::summary(&[run("none", 0.9, 1.0), run("sbc", 0.2, 1.0)]);
        assert_eq!(by_bytes(&wrecks).unwrap().marks.len(), 2);
    }

    #[test]
    fn intervals_are_of_the_paired_difference() {
        let mut runs = vec![run("none", 0.90, 1.0), run("3lc", 0.89, 1.0)];
        let second = runs.iter().map(|run| RunRecord {
            seed: 2,
            quality: run.quality + 0.03,
            ..run.clone()
        });
        runs.extend(second.collect::<Vec<_>>());
        runs[3].quality = 0.94;
        // −1 and +1 points: 0 ± 12.706 · √2 / √2.
        let point = by_bytes(&synthetic::summary(&runs)).unwrap().marks[1].point;
        assert!(point.y.abs() < 1e-9 && (point.high - 12.706).abs() < 1e-6, "{point:?}");
    }

    #[test]
    fn less_perplexity_is_better() {
        let runs = [synthetic::text_run("none", 4.0), synthetic::text_run("3lc", 4.02)];
        let mut runs = runs.to_vec();
        runs.push(synthetic::text_run("sbc", f64::MAX));
        let chart = by_bytes(&synthetic::summary(&runs)).unwrap();
        assert_eq!(
            (chart.marks.len(), chart.y.as_str()),
            (2, "perplexity minus none (less is better)")
        );
        assert!(chart.marks.iter().all(|one| one.on_front));
        assert!((chart.band.unwrap().high - 0.04).abs() < 1e-9);
    }
}
