//! Reports: one HTML file each. The content of a report is data; its charts are figures of
//! [`plot`](crate::plot); the page shows both.

mod answer;
mod content;
mod end;
mod facts;
mod origin;
mod page;
mod tables;

use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::provenance::provenance;
use crate::runner::Outcome;
use crate::summary::{self, Summary, summarize};
use crate::{TestbedError, accounting, diagnosis, figures};

pub(crate) use answer::answer;
pub(crate) use content::{Block, Report, Section};
pub(crate) use end::by_time;
pub(crate) use origin::{Origin, papers};
pub(crate) use page::page;

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
    let origin = Origin::here();
    let mut sections = vec![traffic(&summary), time(&summary), training(&summary, runs)];
    sections.extend(accounting(runs));
    sections.extend(layers(runs));
    sections.push(set_up(experiment, &summary, runs, &origin));
    sections.push(repeat(experiment, runs, command));
    sections.push(cite(&origin, &about(runs), runs));
    Ok(page(&Report {
        title: format!("{} on {}", runs[0].model, runs[0].data),
        lead: vec![lead(&summary, runs), origin.sentence()],
        warnings: warnings(outcome),
        answer: Some(answer(&summary)),
        sections,
    }))
}

/// The text before failed runs.
pub(crate) const FAILED: &str = "These runs failed, and are not in the tables and charts:";

/// What was compared, in a sentence.
fn lead(summary: &Summary, runs: &[RunRecord]) -> String {
    let first = &runs[0];
    let compressors = match summary.rows.len() {
        1 => "1 compressor".to_owned(),
        several => format!("{several} compressors"),
    };
    format!(
        "A comparison by gradwire: {compressors}, {} workers, {} steps of {} examples per worker.",
        first.workers, first.steps, first.batch
    )
}

/// What is missing.
fn warnings(outcome: &Outcome) -> Vec<Block> {
    let stopped = "The comparison was stopped before all of its runs were done.";
    let stopped = outcome.interrupted.then(|| Block::Text(stopped.to_owned()));
    let failed = (!outcome.failures.is_empty())
        .then(|| [Block::Text(FAILED.to_owned()), Block::List(outcome.failed())]);
    stopped.into_iter().chain(failed.into_iter().flatten()).collect()
}

fn traffic(summary: &Summary) -> Section {
    let caption = "Measured: quality at the end, and bytes per worker and run";
    let mut blocks = vec![Block::table(caption, summary::tables::traffic(summary))];
    blocks.extend(
        summary::tables::beyond_all_reduce(summary).map(|beyond| Block::Notes(vec![beyond])),
    );
    Section::new("Quality and traffic", blocks)
}

fn time(summary: &Summary) -> Section {
    let caption = "Measured times per step, and modelled step times by link";
    let blocks = vec![
        Block::table(caption, summary::tables::time(summary)),
        Block::Notes(summary::tables::notes(summary)),
        Block::charts(by_time(summary)),
    ];
    Section::new("Time per step", blocks)
}

/// Charts of the course of training.
fn training(summary: &Summary, runs: &[RunRecord]) -> Section {
    let over_time = summary.links.iter().map(|&link| figures::quality_over_time(runs, link));
    let over_steps = [
        figures::loss(runs),
        figures::quality(runs),
        figures::quality_over_bytes(runs),
        figures::bits_per_value(runs),
    ];
    Section::new(
        "The course of training",
        vec![Block::charts(over_steps.into_iter().chain(over_time))],
    )
}

fn accounting(runs: &[RunRecord]) -> Option<Section> {
    let table = accounting::table(runs);
    (!table.is_empty()).then(|| {
        let notes = Block::Notes(vec![accounting::NOTE.to_owned()]);
        let caption = "The first seed of each compressor";
        Section::new(accounting::HEADING, vec![Block::table(caption, table), notes])
    })
}

fn layers(runs: &[RunRecord]) -> Option<Section> {
    let rates = diagnosis::table(runs);
    (!rates.is_empty()).then(|| {
        let notes = Block::Notes(vec![diagnosis::NOTE.to_owned()]);
        let charts = Block::charts(diagnosis::charts(runs));
        Section::new("Layer by layer", vec![Block::table("Compression", rates), notes, charts])
    })
}

fn set_up(
    experiment: &Experiment,
    summary: &Summary,
    runs: &[RunRecord],
    origin: &Origin,
) -> Section {
    let (first, provenance) = (&runs[0], provenance(runs));
    let data = format!("{provenance} Data: {} with SHA-256 {}.", first.data, first.data_checksum);
    let mut facts = facts::facts(experiment, summary, runs);
    facts.extend(origin.facts());
    Section::new("Set-up", vec![Block::Facts(facts), Block::Text(data)])
}

fn repeat(experiment: &Experiment, runs: &[RunRecord], command: &str) -> Section {
    let file = "Every setting, as an experiment file:".to_owned();
    let mut blocks = vec![Block::Code(command.to_owned())];
    if let Some(seeds) = one_seed(runs) {
        blocks.push(Block::Text(seeds));
    }
    blocks.extend([Block::Text(file), Block::Code(experiment.to_toml())]);
    Section::new("How to repeat the runs", blocks)
}

/// Advice for a comparison of one seed.
fn one_seed(runs: &[RunRecord]) -> Option<String> {
    let first = runs.first()?.seed;
    let advice = "For intervals repeat it with several seeds: --seed 0 --seed 1 --seed 2.";
    runs.iter().all(|run| run.seed == first).then(|| advice.to_owned())
}

/// What was done, for a bibliography.
fn about(runs: &[RunRecord]) -> String {
    let first = &runs[0];
    format!("Comparison of compressors for {} on {}", first.model, first.data)
}

/// How to cite gradwire and the papers of these runs' compressors.
pub(crate) fn cite(origin: &Origin, about: &str, runs: &[RunRecord]) -> Section {
    let mut blocks = vec![Block::Code(origin.citation(about))];
    let papers = papers(runs.iter().map(|run| run.compressor.as_str()));
    if !papers.is_empty() {
        blocks.extend([Block::Text("The compressors are from:".to_owned()), Block::List(papers)]);
    }
    Section::new("How to cite", blocks)
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::Link;

    use super::*;
    use crate::{synthetic, verdict};

    fn report(runs: &[RunRecord]) -> String {
        let outcome = Outcome { runs: runs.to_vec(), ..Outcome::default() };
        html(&Experiment::default(), &outcome, "gradwire compare --data 'a & b'").unwrap()
    }

    #[test]
    fn the_report_holds_its_result_tables_charts_and_how_to_repeat_it() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc:s=1.5", 1)];
        let html = report(&runs);
        // One large chart, one for the step time on each of four links, and eight of the course.
        assert_eq!(html.matches("<figure>").count(), 13);
        assert_eq!(html.matches("<table").count(), 3);
        assert!(
            html.contains("3lc:s=1.5 keeps the accuracy of none (+0.00 points, n = 1) and is ")
        );
        assert!(html.contains("gradwire compare --data 'a &amp; b'"));
        assert!(html.contains("3lc:s=1.5") && html.contains("modelled"));
        assert!(html.contains("Runs by gradwire 0.0.0. Data: digits with SHA-256 abc."));
        assert!(html.contains("@software{gradwire,") && html.contains("<li>3lc: "));
        assert!(html.contains("<dt>host of the report</dt>") && !html.contains("stopped before"));
        // Every text of an axis is an SI unit or a number.
        assert!(html.contains("\u{a0}kB</text>") && html.contains("\u{a0}ms</text>"));
    }

    #[test]
    fn runs_that_failed_are_shown_and_their_compressor_is_not_recommended() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1)];
        let runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let summary = summarize(&runs, &[Link::mbit(0.1)]).unwrap();
        assert!(verdict::lines(&summary)[1].contains(": none"));
        let note = "Compressors with fewer than 2 seeds, whose means are less reliable: 3lc 1.";
        assert_eq!(summary::tables::notes(&summary).last().unwrap(), note);
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
