//! The page of a study: tables, charts and what differs from the paper, as Markdown and as HTML.

use gradwire_train::RunRecord;

use super::study::{About, Charts, Report, Results, Study};
use crate::page::Page;
use crate::summary::Summary;
use crate::table::{self, Grid};
use crate::{diagnosis, figures};

/// What a study of a paper's runs has to show.
pub(super) struct Findings {
    /// Tables with their headings; the first is also printed.
    pub(super) tables: Vec<(&'static str, Grid)>,
    /// The charts.
    pub(super) charts: Charts,
    /// The paper's set-up beside the one of the runs.
    pub(super) setup: Grid,
    /// What the figures are, in sentences.
    pub(super) notes: Vec<String>,
}

impl Findings {
    /// The paper's table beside quality, traffic and time of all compressors, as every comparison of one set-up shows
    /// them.
    pub(super) fn of_one_setup(
        heading: &'static str,
        table: Grid,
        summary: &Summary,
        charts: Charts,
        setup: Grid,
    ) -> Self {
        let tables = vec![
            (heading, table),
            ("Quality and traffic", table::traffic(summary)),
            ("Time a step", table::time(summary)),
        ];
        Self { tables, charts, setup, notes: table::notes(summary) }
    }

    /// What a study shows that compares several set-ups, which tables by compressor would mix up.
    pub(super) fn of_several_setups(
        heading: &'static str,
        table: Grid,
        charts: Charts,
        setup: Grid,
        note: &str,
    ) -> Self {
        Self { tables: vec![(heading, table)], charts, setup, notes: vec![note.to_owned()] }
    }

    /// The page: `README.md`, `report.html` and each chart as a file of its own.
    pub(super) fn report(&self, study: &dyn Study, results: &Results<'_>) -> Report {
        let mut files = vec![
            ("README.md".to_owned(), self.markdown(study, results.command)),
            ("report.html".to_owned(), self.html(study, results.command)),
        ];
        files.extend(self.charts.iter().map(|(name, chart)| (name.clone(), chart.svg_file())));
        let table = self.tables[0].1.clone().without_second("compressor");
        let place = format!("\nReport: {}", results.out.join("report.html").display());
        Report { files, printed: vec![table.terminal(), place] }
    }

    fn markdown(&self, study: &dyn Study, command: &str) -> String {
        let mut text = format!("{}.\n", study.about().citation);
        for (heading, grid) in &self.tables {
            text.push_str(&format!("\n## {heading}\n\n{}", grid.markdown()));
        }
        text.push('\n');
        for note in &self.notes {
            text.push_str(&format!("- {note}\n"));
        }
        text.push_str(&format!("\n## What differs in the set-up\n\n{}", self.setup.markdown()));
        text.push_str(&format!("\n## Charts\n\n{}", embedded(&self.charts)));
        readme(study, &text, command)
    }

    fn html(&self, study: &dyn Study, command: &str) -> String {
        let about = study.about();
        let mut page = Page::new(&format!("{}: {}", about.id, about.summary));
        page.paragraph(&format!("{}.", about.citation));
        for (heading, grid) in &self.tables {
            page.section(heading).grid(grid);
        }
        page.notes(&self.notes);
        page.section("Charts").charts(self.charts.iter().map(|(_, chart)| &**chart));
        page.section("What differs in the set-up").grid(&self.setup);
        page.section("To repeat it").code(command);
        page.html()
    }
}

/// The page of a study that is a text with charts: `README.md` and each chart as a file of its own.
pub(super) fn page(
    study: &dyn Study,
    command: &str,
    text: &str,
    charts: &Charts,
    printed: Vec<String>,
) -> Report {
    let text = format!("{text}\n{}", embedded(charts));
    let mut files = vec![("README.md".to_owned(), readme(study, &text, command))];
    files.extend(charts.iter().map(|(name, chart)| (name.clone(), chart.svg_file())));
    Report { files, printed }
}

/// A page in Markdown, from its heading to how to repeat it.
fn readme(study: &dyn Study, text: &str, command: &str) -> String {
    let About { id, summary, .. } = study.about();
    format!("# {id}: {summary}\n\n{text}\n## To repeat it\n\n```\n{command}\n```\n")
}

/// Charts as Markdown shows them.
fn embedded(charts: &Charts) -> String {
    charts.iter().map(|(name, chart)| format!("![{}]({name})\n", chart.title())).collect()
}

/// The charts over steps that most studies show: loss, quality and bits.
pub(super) fn charts_over_steps(summary: &Summary, runs: &[RunRecord]) -> Charts {
    let quality = format!("{}.svg", summary.metric.name().replace(' ', "-"));
    vec![
        ("loss.svg".to_owned(), Box::new(figures::loss(runs))),
        (quality, Box::new(figures::quality(runs))),
        bits(runs),
    ]
}

/// The chart of bits per parameter over steps.
pub(super) fn bits(runs: &[RunRecord]) -> (String, Box<dyn crate::plot::Figure>) {
    ("bits.svg".to_owned(), Box::new(figures::bits_per_value(runs)))
}

/// The charts of each compressor's layers, of runs with diagnoses.
pub(super) fn charts_of_layers(runs: &[RunRecord]) -> Charts {
    let charts = diagnosis::charts(runs).into_iter().enumerate();
    let named = charts.map(|(at, chart)| -> (String, Box<dyn crate::plot::Figure>) {
        (format!("layers-{}.svg", at + 1), Box::new(chart))
    });
    named.collect()
}
