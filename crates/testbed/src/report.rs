//! The report of a comparison: one HTML file.

use std::collections::BTreeSet;

use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::format::seconds;
use crate::page::Page;
use crate::plot::{Chart, Figure};
use crate::provenance::provenance;
use crate::runner::Outcome;
use crate::summary::{Summary, summarize};
use crate::{TestbedError, accounting, diagnosis, figures, table, verdict};

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
    let summary = summarize(runs, &experiment.links)?.with_diverged(&outcome.diverged);
    let first = &runs[0];
    let mut page = Page::new(&format!("{} on {}", first.model, first.data));
    page.facts(facts(experiment, &summary, runs));
    if outcome.interrupted {
        page.paragraph("The comparison was stopped before all of its runs were done.");
    }
    if !outcome.failures.is_empty() {
        page.paragraph(FAILED).list(&outcome.failed());
    }
    if let [what, lines @ ..] = verdict::lines(&summary).as_slice() {
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

/// The text before failed runs.
pub(crate) const FAILED: &str = "These runs failed, and are not in the tables and charts:";

fn facts(
    experiment: &Experiment,
    summary: &Summary,
    runs: &[RunRecord],
) -> Vec<(&'static str, String)> {
    let run = &runs[0];
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let mut facts = vec![
        ("parameters", format!("{} in {} tensors", run.parameters, run.tensors)),
        ("compressed", format!("{} parameters", run.compressed_parameters)),
        ("workers", run.workers.to_string()),
        ("exchange", exchanges(summary)),
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
    facts.push(("sent uncompressed", uncompressed(experiment)));
    if !experiment.rules.is_empty() {
        let rules: Vec<String> = experiment.rules.iter().map(ToString::to_string).collect();
        facts.push(("rules", format!("{} (not for none)", rules.join(", "))));
    }
    if run.overlap {
        facts.push(("overlap", "gradients are sent while others are computed".to_owned()));
    }
    facts
}

/// The exchanges, each with its compressors if there are several.
fn exchanges(summary: &Summary) -> String {
    if !summary.has_exchanges() {
        return summary.rows[0].exchange.to_string();
    }
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for row in &summary.rows {
        let exchange = row.exchange.to_string();
        match all.iter_mut().find(|(known, _)| *known == exchange) {
            Some((_, compressors)) => compressors.push(&row.compressor),
            None => all.push((exchange, vec![&row.compressor])),
        }
    }
    let named = |(exchange, compressors): &(String, Vec<&str>)| {
        format!("{exchange}: {}", compressors.join(", "))
    };
    all.iter().map(named).collect::<Vec<_>>().join("; ")
}

/// The tensors that no compressor is for, unless a rule is.
fn uncompressed(experiment: &Experiment) -> String {
    let below = experiment.raw_below;
    let small = (below > 0).then(|| format!("tensors below {below} elements"));
    let vectors = experiment.raw_vectors.then(|| "vectors".to_owned());
    let named = experiment.raw_names.iter().map(|word| format!("names with '{word}'"));
    let all: Vec<String> = vectors.into_iter().chain(small).chain(named).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
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
    fn facts_name_exchanges_rules_and_raw_tensors() {
        let mut runs =
            [synthetic::run("none", 1), synthetic::run("3lc", 1), synthetic::run("sbc", 1)];
        let fact = |runs: &[RunRecord], name: &str| {
            let experiment = Experiment::default().with(|e| {
                e.rules = vec!["*.bias -> fp16".parse().unwrap()];
                e.raw_names = vec!["norm".to_owned()];
            });
            let facts = facts(&experiment, &synthetic::summary(runs), runs);
            facts.into_iter().find(|(known, _)| *known == name).unwrap().1
        };
        assert_eq!(fact(&runs, "exchange"), "server");
        runs[0].exchange = "all-reduce".parse().unwrap();
        assert_eq!(fact(&runs, "exchange"), "all-reduce: none; server: 3lc, sbc");
        assert_eq!(fact(&runs, "rules"), "*.bias -> fp16 (not for none)");
        let raw = "vectors, tensors below 256 elements, names with 'norm'";
        assert_eq!(fact(&runs, "sent uncompressed"), raw);
    }

    #[test]
    fn runs_that_failed_are_shown_and_their_compressor_is_not_recommended() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1)];
        let runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let summary = summarize(&runs, &[Link::mbit(0.1)]).unwrap();
        assert!(verdict::lines(&summary)[1].contains(": none"));
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
        let html = report(&runs(4.25));
        assert!(html.contains("4.250") && html.contains("+0.250"));
        assert!(!html.contains("accuracy") && !html.contains("425"));
    }
}
