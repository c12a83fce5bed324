//! The report of a comparison: one HTML file.

use std::collections::BTreeSet;

use gradwire_train::{Metric, RunRecord};

use crate::experiment::Experiment;
use crate::format::{bandwidth, points, seconds, significant};
use crate::page::Page;
use crate::plot::{Chart, Figure};
use crate::provenance::provenance;
use crate::runner::Outcome;
use crate::summary::{Row, Summary, summarize};
use crate::table::DIVERGED;
use crate::{TestbedError, accounting, diagnosis, figures, table};

/// The report of an experiment and its runs, made by `command`, as a self-contained HTML page.
///
/// # Errors
/// As for [`summarize`].
pub fn html(
    experiment: &Experiment,
    outcome: &Outcome,
    command: &str,
) -> Result<String, TestbedError> {
    let runs = outcome.runs.as_slice();
    let summary = summarize(runs, &experiment.links())?;
    let first = &runs[0];
    let mut page = Page::new(&format!("{} on {}", first.model, first.data));
    page.facts(facts(runs));
    if outcome.interrupted {
        page.paragraph("The comparison was stopped before all of its runs were done.");
    }
    if !outcome.failures.is_empty() {
        page.paragraph(FAILED).list(&outcome.failed());
    }
    if let [what, lines @ ..] = verdict(&summary).as_slice() {
        page.paragraph(what).list(lines);
    }
    page.section("Quality and traffic").table(&table::traffic(&summary));
    if let Some(beyond) = table::beyond_all_reduce(&summary) {
        page.notes(&[beyond]);
    }
    page.section("Time per step").table(&table::time(&summary)).notes(&table::notes(&summary));

    let over_time = summary.links.iter().map(|&link| figures::quality_over_time(runs, link));
    page.section(&format!("Training time against {}", first.metric.name()))
        .charts(over_time.map(svg));
    let over_bytes = figures::quality_over_bytes(runs);
    let over_steps =
        [figures::loss(runs), figures::quality(runs), over_bytes, figures::bits_per_value(runs)];
    page.section("Over the steps of training").charts(over_steps.map(svg));
    let accounting = accounting::table(runs);
    if !accounting.is_empty() {
        page.section(accounting::HEADING).table(&accounting).notes(&[accounting::NOTE.to_owned()]);
    }
    let rates = diagnosis::table(runs);
    if !rates.is_empty() {
        page.section("Layer by layer")
            .table(&rates)
            .notes(&[diagnosis::NOTE.to_owned()])
            .charts(diagnosis::charts(runs).into_iter().map(svg));
    }
    let provenance = provenance(runs);
    let (data, checksum) = (&first.data, &first.data_checksum);
    page.section("How to repeat the runs")
        .code(command)
        .code(&experiment.to_toml())
        .paragraph(&format!("{provenance} Data: {data} with SHA-256 {checksum}."));
    Ok(page.html())
}

fn svg(chart: Chart) -> String {
    chart.svg()
}

/// The verdict: for each link, the fastest compressor that keeps quality with all seeds, and a
/// faster one that does not. Empty without a run of `none` and of another compressor.
pub fn verdict(summary: &Summary) -> Vec<String> {
    let Some(none) = summary.baseline().filter(|_| summary.rows.len() > 1) else {
        return Vec::new();
    };
    if !summary.metric.is_fraction() && none.quality.mean >= DIVERGED {
        return vec![
            "The runs of none diverged, so no quality can be compared with theirs.".to_owned(),
        ];
    }
    let (allowed, within) = tolerance(summary.metric, none);
    let seeds = match summary.seeds() {
        1 => "with one seed (repeat --seed to see the spread over seeds)".to_owned(),
        seeds => format!("in the mean over {seeds} seeds"),
    };
    let head = format!(
        "Fastest compressors that keep the quality of none within {within}, {seeds}; times are \
         modelled:"
    );
    let comparison = Comparison { summary, none, allowed };
    let lines = (0..summary.links.len()).map(|link| comparison.line(link));
    std::iter::once(head).chain(lines).collect()
}

/// The compressors beside `none`.
struct Comparison<'a> {
    summary: &'a Summary,
    none: &'a Row,
    /// How much worse the quality may be.
    allowed: f64,
}

impl Comparison<'_> {
    /// The difference in quality, between runs with the same seed if there are any: seeds differ by
    /// more than compressors.
    fn difference(&self, row: &Row) -> f64 {
        row.difference
            .map_or(row.quality.mean - self.none.quality.mean, |difference| difference.mean)
    }

    fn keeps(&self, row: &Row) -> bool {
        let sign = if self.summary.metric.is_fraction() { -1.0 } else { 1.0 };
        sign * self.difference(row) <= self.allowed && row.quality.count == self.summary.seeds()
    }

    /// The fastest compressor on a link for which `holds` is true, if it is
    /// [worthwhile](WORTHWHILE).
    fn fastest(&self, link: usize, holds: impl Fn(&Row) -> bool) -> Option<(&Row, f64)> {
        let rows = self.summary.rows.iter().filter(|row| holds(row));
        let speeds = rows.filter_map(|row| Some((row, row.on_links[link].speedup?)));
        let best = speeds.max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.filter(|(_, speed)| *speed >= WORTHWHILE)
    }

    fn line(&self, link: usize) -> String {
        let rate = bandwidth(self.summary.links[link].bits_per_second);
        let times = |(row, speed): (&Row, f64)| {
            format!("{}, {speed:.1} times the speed of none", row.compressor)
        };
        let kept = self.fastest(link, |row| self.keeps(row));
        let least = kept.map_or(WORTHWHILE, |(_, speed)| speed);
        let lost = self.fastest(link, |row| !self.keeps(row)).filter(|(_, speed)| *speed > least);
        let best = kept.map_or_else(|| "none".to_owned(), times);
        match lost {
            Some((row, speed)) => {
                let cost = quality_difference(self.summary.metric, self.difference(row));
                format!("at {rate}: {best} ({}, {cost})", times((row, speed)))
            }
            None if kept.is_none() => format!("at {rate}: none, because no other is faster"),
            None => format!("at {rate}: {best}"),
        }
    }
}

/// A difference in quality, with its sign and unit, or that the run diverged.
fn quality_difference(metric: Metric, difference: f64) -> String {
    if metric.is_fraction() {
        return format!("at {} points", points(difference));
    }
    match difference.abs() {
        DIVERGED.. => "diverged".to_owned(),
        1e6.. => format!("at {difference:+.1e}"),
        _ => format!("at {difference:+.3}"),
    }
}

/// The tolerance within which a quality counts as kept: as a number and in words.
fn tolerance(metric: Metric, none: &Row) -> (f64, String) {
    if metric.is_fraction() {
        return (TOLERANCE, format!("{:.1} points", TOLERANCE * 100.0));
    }
    let allowed = RELATIVE_TOLERANCE * none.quality.mean;
    (allowed, format!("a perplexity of {} more", significant(allowed)))
}

/// The text before failed runs.
pub(crate) const FAILED: &str = "These runs failed, and are not in the tables and charts:";

/// The smallest speed-up for which a compressor is recommended.
const WORTHWHILE: f64 = 1.05;

/// How far below the baseline an accuracy may lie: half a percentage point.
const TOLERANCE: f64 = 0.005;

/// The same for a perplexity above the baseline, as a fraction of the baseline.
const RELATIVE_TOLERANCE: f64 = 0.01;

fn facts(runs: &[RunRecord]) -> Vec<(&'static str, String)> {
    let run = &runs[0];
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let mut facts = vec![
        ("parameters", format!("{} in {} tensors", run.parameters, run.tensors)),
        ("compressed", format!("{} parameters", run.compressed_parameters)),
        ("workers", run.workers.to_string()),
        ("exchange", run.exchange.to_string()),
        ("steps", run.steps.to_string()),
        ("batch per worker", run.batch.to_string()),
        ("optimizer", run.optimizer.to_string()),
        ("learning rate", run.learning_rate.to_string()),
        ("weight decay", run.weight_decay.to_string()),
        ("gradient norm", run.clip.map_or("any".to_owned(), |norm| format!("at most {norm}"))),
        ("crop and flip", if run.augment == Some(true) { "yes" } else { "no" }.to_owned()),
        ("seeds", seeds.join(", ")),
        ("total time", seconds(runs.iter().map(|run| run.seconds).sum())),
    ];
    if run.overlap {
        facts.push(("overlap", "gradients are sent while others are computed".to_owned()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::Link;

    use super::*;
    use crate::synthetic;

    fn report(runs: &[RunRecord]) -> String {
        let outcome = Outcome { runs: runs.to_vec(), ..Outcome::default() };
        html(&Experiment::default(), &outcome, "gradwire compare --data 'a & b'").unwrap()
    }

    #[test]
    fn the_report_holds_tables_charts_and_how_to_repeat_it() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc:s=1.5", 1)];
        let html = report(&runs);
        assert_eq!(html.matches("<svg").count(), 8);
        assert_eq!(html.matches("<table").count(), 2);
        assert!(html.contains("gradwire compare --data 'a &amp; b'"));
        assert!(html.contains("3lc:s=1.5") && html.contains("modelled"));
        assert!(html.contains("Runs by gradwire 0.0.0. Data: digits with SHA-256 abc."));
        assert!(!html.contains("http://") || !html.contains("href"));
        assert!(!html.contains("stopped before"));
    }

    #[test]
    fn the_verdict_is_the_fastest_that_keeps_quality() {
        let mut runs =
            vec![synthetic::run("none", 1), synthetic::run("3lc", 1), synthetic::run("onebit", 1)];
        runs[2].bytes_up = 1.0;
        runs[2].bytes_down = 1.0;
        let says = |runs: &[RunRecord]| {
            verdict(&summarize(runs, &[Link::mbit(0.1), Link::mbit(1e9)]).unwrap())
        };
        assert!(says(&runs)[1].contains("onebit"));
        assert!(says(&runs)[2].contains(": none, because no other is faster"));
        runs[2].quality -= 0.02;
        assert!(says(&runs)[1].contains(": 3lc, "), "{:?}", says(&runs));
        assert!(
            says(&runs)[1].contains("(onebit, ") && says(&runs)[1].ends_with(", at -2.00 points)")
        );
        assert!(says(&runs)[0].contains("one seed") && says(&runs[..1]).is_empty());
        assert!(says(&runs[1..]).is_empty());
    }

    #[test]
    fn a_loss_with_every_seed_is_not_within_the_spread_of_seeds() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1), ("3lc", 2)];
        let mut runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let says =
            |runs: &[RunRecord]| verdict(&summarize(runs, &[Link::mbit(0.1)]).unwrap()).remove(1);
        (runs[0].quality, runs[1].quality) = (0.90, 0.96);
        // 2.5 points less each time, while seeds differ by 6.
        (runs[2].quality, runs[3].quality) = (0.875, 0.935);
        assert!(says(&runs).contains(": none"));
        (runs[2].quality, runs[3].quality) = (0.897, 0.957);
        assert!(says(&runs).contains("3lc"));
    }

    #[test]
    fn runs_that_failed_are_shown_and_their_compressor_is_not_recommended() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1)];
        let runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let summary = summarize(&runs, &[Link::mbit(0.1)]).unwrap();
        assert!(verdict(&summary)[1].contains(": none"));
        let note = "Compressors with fewer than 2 seeds, whose means are less reliable: 3lc 1.";
        assert_eq!(table::notes(&summary).last().unwrap(), note);
        let failure = TestbedError::Config("3lc, seed 2: the loss is NaN".to_owned());
        let (runs, failures) = (runs.to_vec(), vec![failure]);
        let outcome = Outcome { runs, failures, ..Outcome::default() };
        let page = html(&Experiment::default(), &outcome, "gradwire compare").unwrap();
        assert!(page.contains(FAILED) && page.contains("seed 2: the loss is NaN"));
    }

    #[test]
    fn less_perplexity_is_better() {
        let runs =
            |other: f64| [synthetic::text_run("none", 4.0), synthetic::text_run("3lc", other)];
        let says = |other| verdict(&summarize(&runs(other), &[Link::mbit(0.1)]).unwrap());
        assert!(says(3.0)[1].contains("3lc") && says(4.03)[1].contains("3lc"));
        assert!(says(4.05)[1].contains(": none"));
        assert!(says(4.0)[0].contains("0.0400 more"), "{:?}", says(4.0));
        assert!(says(2e9)[1].ends_with(", at +2.0e9)"), "{:?}", says(2e9));
        assert!(says(f64::MAX)[1].ends_with(", diverged)"), "{:?}", says(f64::MAX));
        let mut diverged = runs(4.0);
        diverged[0].quality = f64::MAX;
        let says = verdict(&summarize(&diverged, &[Link::mbit(0.1)]).unwrap());
        assert!(says.len() == 1 && says[0].contains("none diverged"), "{says:?}");
        let html = report(&runs(4.25));
        assert!(html.contains("4.250") && html.contains("+0.250"));
        assert!(!html.contains("accuracy") && !html.contains("425"));
    }
}
