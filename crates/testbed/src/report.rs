//! The report of a comparison: one HTML file.

use std::collections::BTreeSet;

use gradwire_train::{Metric, RunRecord};

use crate::experiment::Experiment;
use crate::format::{bandwidth, seconds, significant};
use crate::page::Page;
use crate::plot::{Chart, Figure};
use crate::runner::Outcome;
use crate::summary::{Row, Summary, summarize};
use crate::{TestbedError, accounting, diagnosis, figures, table};

/// The report of an experiment and its runs, which `command` executed, as a self-contained HTML page.
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
    page.section("Time a step").table(&table::time(&summary)).notes(&table::notes(&summary));

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
    page.section("To repeat it").code(command).code(&experiment.to_toml()).paragraph(&format!(
        "gradwire {}; {}, {} build; data {} with SHA-256 {}.",
        first.version,
        std::env::consts::ARCH,
        if cfg!(debug_assertions) { "debug" } else { "release" },
        first.data,
        first.data_checksum,
    ));
    Ok(page.html())
}

fn svg(chart: Chart) -> String {
    chart.svg()
}

/// The verdict: for each link, the fastest of the compressors that keep quality with all seeds. Empty without a run of
/// `none`.
pub fn verdict(summary: &Summary) -> Vec<String> {
    let Some(none) = summary.baseline() else { return Vec::new() };
    let (allowed, within) = tolerance(summary.metric, none);
    let keeps = |row: &&Row| {
        // Seeds differ by more than compressors, so that only runs with the same one are compared where there are any.
        let difference = row.difference.map_or(row.quality.mean - none.quality.mean, |d| d.mean);
        let worse = if summary.metric.is_fraction() { -difference } else { difference };
        worse <= allowed && row.quality.count == summary.seeds()
    };
    let mut lines = vec![format!(
        "Fastest that keep the quality of none, within {within} in the mean over seeds; modelled:"
    )];
    for (at, link) in summary.links.iter().enumerate() {
        let kept = summary.rows.iter().filter(keeps);
        let best = kept.min_by(|a, b| a.on_links[at].step.total_cmp(&b.on_links[at].step));
        let pays = best.and_then(|row| Some((row, row.on_links[at].speedup?)));
        let rate = bandwidth(link.bits_per_second);
        lines.push(match pays.filter(|(_, speedup)| *speedup >= WORTHWHILE) {
            Some((row, speedup)) => {
                format!("at {rate}: {}, {speedup:.1} times the speed of none", row.compressor)
            }
            None => format!("at {rate}: none, nothing else pays"),
        });
    }
    lines
}

/// The tolerance within which a quality counts as kept: as a number and in words.
fn tolerance(metric: Metric, none: &Row) -> (f64, String) {
    if metric.is_fraction() {
        return (TOLERANCE, format!("{:.1} points", TOLERANCE * 100.0));
    }
    let allowed = RELATIVE_TOLERANCE * none.quality.mean;
    (allowed, format!("a perplexity of {} more", significant(allowed)))
}

/// What stands before failed runs.
pub(crate) const FAILED: &str = "These runs failed, and are in none of the tables and charts:";

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
        ("norm of gradients", run.clip.map_or("any".to_owned(), |norm| format!("at most {norm}"))),
        ("crop and flip", if run.augment == Some(true) { "yes" } else { "no" }.to_owned()),
        ("seeds", seeds.join(", ")),
        ("time it took", seconds(runs.iter().map(|run| run.seconds).sum())),
    ];
    if run.overlap {
        facts.push(("overlap", "gradients travel while others are computed".to_owned()));
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
        assert!(says(&runs)[2].contains("nothing else pays"));
        runs[2].quality -= 0.02;
        assert!(says(&runs)[1].contains("3lc"));
        assert!(says(&runs[1..]).is_empty());
    }

    #[test]
    fn a_loss_with_every_seed_is_not_within_the_spread_of_seeds() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1), ("3lc", 2)];
        let mut runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let says =
            |runs: &[RunRecord]| verdict(&summarize(runs, &[Link::mbit(0.1)]).unwrap()).remove(1);
        (runs[0].quality, runs[1].quality) = (0.90, 0.96);
        // 2.5 points less each time, where seeds differ by 6.
        (runs[2].quality, runs[3].quality) = (0.875, 0.935);
        assert!(says(&runs).contains("nothing else pays"));
        (runs[2].quality, runs[3].quality) = (0.897, 0.957);
        assert!(says(&runs).contains("3lc"));
    }

    #[test]
    fn runs_that_failed_are_shown_and_their_compressor_is_not_recommended() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1)];
        let runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let summary = summarize(&runs, &[Link::mbit(0.1)]).unwrap();
        assert!(verdict(&summary)[1].contains("nothing else pays"));
        let note = "Compressors with fewer than 2 seeds, which say less: 3lc 1.";
        assert_eq!(table::notes(&summary).last().unwrap(), note);
        let failure = TestbedError::Config("3lc, seed 2: the loss is NaN".to_owned());
        let outcome = Outcome { runs: runs.to_vec(), failures: vec![failure], interrupted: false };
        let page = html(&Experiment::default(), &outcome, "gradwire compare").unwrap();
        assert!(page.contains(FAILED) && page.contains("seed 2: the loss is NaN"));
    }

    #[test]
    fn less_perplexity_is_better() {
        let runs =
            |other: f64| [synthetic::text_run("none", 4.0), synthetic::text_run("3lc", other)];
        let says = |other| verdict(&summarize(&runs(other), &[Link::mbit(0.1)]).unwrap());
        assert!(says(3.0)[1].contains("3lc") && says(4.03)[1].contains("3lc"));
        assert!(says(4.05)[1].contains("nothing else pays"));
        assert!(says(4.0)[0].contains("0.0400 more"), "{:?}", says(4.0));
        let html = report(&runs(4.25));
        assert!(html.contains("4.250") && html.contains("+0.250"));
        assert!(!html.contains("accuracy") && !html.contains("425"));
    }
}
