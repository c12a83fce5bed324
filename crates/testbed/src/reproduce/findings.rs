//! The page of a study: tables, charts and differences from the paper, as Markdown and as HTML.

use std::rc::Rc;

use gradwire_train::RunRecord;

use super::study::{Charts, Printed, Report, Results, chart};
use crate::plot::Figure;
use crate::provenance::provenance;
use crate::report::{self, Block, FAILED, Origin, Section};
use crate::summary::{Summary, tables};
use crate::table::Table;
use crate::{diagnosis, figures};

/// The heading of the table of set-ups.
const SETUP: &str = "Differences in the set-up";

/// The content of the page of a study of a paper.
pub(super) struct Findings {
    /// Tables with their headings; the first is also printed, and the set-ups below it.
    pub(super) tables: Vec<(&'static str, Table)>,
    /// The charts.
    pub(super) charts: Charts,
    /// The set-ups of the paper and of the runs.
    pub(super) setup: Table,
    /// Explanations of the numbers, in sentences.
    pub(super) notes: Vec<String>,
    /// The summary of the runs, if they have one set-up.
    pub(super) summary: Option<Summary>,
}

impl Findings {
    /// The paper's table, and the tables of quality, traffic and time that every comparison of one
    /// set-up shows.
    pub(super) fn of_one_setup(
        heading: &'static str,
        table: Table,
        summary: &Summary,
        charts: Charts,
        setup: Table,
    ) -> Self {
        let tables = vec![
            (heading, table),
            ("Quality and traffic", tables::traffic(summary)),
            ("Time per step", tables::time(summary)),
        ];
        let (notes, summary) = (tables::notes(summary), Some(summary.clone()));
        Self { tables, charts, setup, notes, summary }
    }

    /// The page: `README.md`, `report.html` and each chart as a file of its own.
    pub(super) fn report(&self, results: &Results<'_>) -> Report {
        let html = ("report.html".to_owned(), self.html(results));
        let files = files(results, &self.markdown(results), [html], &self.charts);
        let table = self.tables[0].1.clone().without_second("compressor");
        let place = format!("\nReport: {}", results.out.join("report.html").display());
        let heading = format!("\n{SETUP}:");
        let printed = vec![table.into(), heading.into(), self.setup.clone().into(), place.into()];
        Report { files, printed }
    }

    fn markdown(&self, results: &Results<'_>) -> String {
        let mut text = format!("{}.\n", results.study.citation);
        for (heading, table) in &self.tables {
            text.push_str(&format!("\n## {heading}\n\n{}", table.markdown()));
        }
        text.push('\n');
        for note in &self.notes {
            text.push_str(&format!("- {note}\n"));
        }
        format!("{text}\n## {SETUP}\n\n{}\n## Charts\n", self.setup.markdown())
    }

    fn html(&self, results: &Results<'_>) -> String {
        let (study, origin) = (results.study, Origin::here());
        let warnings = match results.failed {
            [] => Vec::new(),
            failed => vec![Block::Text(FAILED.to_owned()), Block::List(failed.to_vec())],
        };
        let citation = (!study.citation.is_empty()).then(|| format!("{}.", study.citation));
        let lead = citation.into_iter().chain(opening(results)).chain([origin.sentence()]);
        report::page(&report::Report {
            title: format!("{}: {}", study.id, study.summary),
            lead: lead.collect(),
            warnings,
            answer: self.summary.as_ref().map(report::answer),
            sections: self.sections(results, &origin),
        })
    }

    fn sections(&self, results: &Results<'_>, origin: &Origin) -> Vec<Section> {
        let setup = Block::table("Paper and runs", self.setup.clone());
        let mut sections: Vec<Section> =
            self.tables.iter().map(|one| of_table(results.study.id, one)).collect();
        sections.extend([
            Section::new("What the numbers mean", vec![Block::Notes(self.notes.clone())]),
            Section::new("Charts", vec![self.all_charts()]),
            Section::new(SETUP, vec![setup, Block::Facts(origin.facts())]),
            repeat(results),
            report::cite(origin, &format!("Study {}", results.study.id), results.runs),
        ]);
        sections
    }

    /// The charts of quality against step time, if there is a summary, and those of the study.
    fn all_charts(&self) -> Block {
        let ends = self.summary.iter().flat_map(report::by_time);
        let ends = ends.map(|chart| -> Rc<dyn Figure> { Rc::new(chart) });
        Block::Charts(ends.chain(self.charts.iter().map(|(_, chart)| chart.clone())).collect())
    }
}

fn of_table(id: &str, (heading, table): &(&'static str, Table)) -> Section {
    Section::new(*heading, vec![Block::table(format!("{id}: {heading}"), table.clone())])
}

fn repeat(results: &Results<'_>) -> Section {
    let mut blocks = vec![Block::Code(results.command.to_owned())];
    if let Some((flag, effect)) = as_it_was(results) {
        blocks.push(Block::Text(format!("With {flag}, {effect}")));
    }
    blocks.push(Block::Text(provenance(results.runs)));
    Section::new("How to repeat the runs", blocks)
}

/// The page of a study that is a text with charts: `README.md` and each chart as a file of its own.
pub(super) fn page(
    results: &Results<'_>,
    text: &str,
    charts: &Charts,
    printed: Vec<Printed>,
) -> Report {
    Report { files: files(results, text, [], charts), printed }
}

/// The files of a page: `README.md` with notes, a text, the charts and the command; `more` files;
/// and each chart.
fn files(
    results: &Results<'_>,
    text: &str,
    more: impl IntoIterator<Item = (String, String)>,
    charts: &Charts,
) -> Vec<(String, String)> {
    let (id, summary) = (results.study.id, results.study.summary);
    let (opening, notes) = notes(results);
    let embedded = charts.iter().map(|(name, chart)| format!("![{}]({name})\n", chart.title()));
    let embedded: String = embedded.collect();
    let command = results.command;
    let makers = match provenance(results.runs) {
        none if none.is_empty() => none,
        makers => format!("\n{makers}\n"),
    };
    let settings = as_it_was(results)
        .map_or_else(String::new, |(flag, effect)| format!("\nWith `{flag}`, {effect}\n"));
    let repeat = format!("## How to repeat the runs\n\n```\n{command}\n```\n{settings}{makers}");
    let readme = format!("# {id}: {summary}\n\n{opening}{text}\n{embedded}\n{notes}{repeat}");
    let charts = charts.iter().map(|(name, chart)| (name.clone(), chart.svg_file()));
    [("README.md".to_owned(), readme)].into_iter().chain(more).chain(charts).collect()
}

/// The first paragraph of the notes, which says what the runs show, and a section with the others
/// and the runs that failed. Both are empty or end with a blank line.
fn notes(results: &Results<'_>) -> (String, String) {
    let notes = results.notes.trim();
    let (opening, notes) = notes.split_once("\n\n").unwrap_or((notes, ""));
    let failed = match results.failed {
        [] => String::new(),
        lines => format!("{FAILED}\n\n- {}", lines.join("\n- ")),
    };
    let and_blank = |text: &str| match text {
        "" => String::new(),
        text => format!("{text}\n\n"),
    };
    let notes = and_blank(notes.trim()) + &and_blank(&failed);
    let heading = if notes.is_empty() { "" } else { "## Notes\n\n" };
    (and_blank(opening), format!("{heading}{notes}"))
}

/// The lines of the first paragraph of the notes, without the marks of Markdown.
fn opening(results: &Results<'_>) -> Vec<String> {
    let (opening, _) = notes(results);
    let lines = opening.trim().split("\n- ").map(|line| line.trim_start_matches("- "));
    let plain = |line: &str| {
        // The text of a link, without its address.
        let mut parts = line.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        let text = parts
            .fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, after)| after));
        text.replace(['*', '`', '[', ']'], "").replace('\n', " ")
    };
    lines.filter(|line| !line.is_empty()).map(plain).collect()
}

/// The flag that repeats a study with the settings of its runs, and its effect; `None` for a study
/// that trains nothing.
fn as_it_was(results: &Results<'_>) -> Option<(String, &'static str)> {
    let file = results.out.join("experiment.toml");
    let effect =
        "every setting has the same value as in these runs, even if a default has changed since.";
    let flag = || (format!("--experiment {}", file.display()), effect);
    results.study.experiment.map(|_| flag())
}

/// The charts over steps that most studies show: loss, quality and bits.
pub(super) fn charts_over_steps(summary: &Summary, runs: &[RunRecord]) -> Charts {
    let quality = format!("{}.svg", summary.metric.name().replace(' ', "-"));
    vec![chart("loss.svg", figures::loss(runs)), chart(quality, figures::quality(runs)), bits(runs)]
}

/// The chart of bits per parameter over steps.
pub(super) fn bits(runs: &[RunRecord]) -> (String, Rc<dyn Figure>) {
    chart("bits.svg", figures::bits_per_value(runs))
}

/// The charts of each compressor's layers, from runs with diagnoses.
pub(super) fn charts_of_layers(runs: &[RunRecord]) -> Charts {
    let numbered = diagnosis::charts(runs).into_iter().zip(1..);
    numbered.map(|(layers, number)| chart(format!("layers-{number}.svg"), layers)).collect()
}

impl Table {
    /// A table of the differences between the set-ups of a paper and of the runs.
    pub(super) fn setup(paper: &str) -> Self {
        Self::new(["", paper, "here"]).left_aligned()
    }

    /// Adds a line to such a table.
    pub(super) fn line(&mut self, what: &str, paper: impl ToString, here: impl ToString) {
        self.push([what.to_owned(), paper.to_string(), here.to_string()]);
    }
}
