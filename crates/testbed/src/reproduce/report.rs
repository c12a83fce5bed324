//! The files of a reproduction: tables in Markdown, charts, and a page with both.

use gradwire_train::run::RunRecord;

use crate::experiment::Experiment;
use crate::format::bandwidth;
use crate::page::Page;
use crate::plot::Figure;
use crate::summary::{Summary, summarize};
use crate::table::{self, Grid};
use crate::{TestbedError, accounting, diagnosis, figures, scaling};

use super::{Reproduction, sbc, table_1, table_2};

/// File names with their contents, to be written into one folder.
pub type Files = Vec<(String, String)>;

/// Everything but the runs themselves: `README.md`, `report.html` and a chart a file. Tables are of
/// the longest runs, charts over time of all lengths.
///
/// # Errors
/// If there are no runs.
pub fn files(
    which: Reproduction,
    experiment: &Experiment,
    runs: &[RunRecord],
    command: &str,
) -> Result<Files, TestbedError> {
    let longest = runs.iter().map(|run| run.steps).max().unwrap_or(0);
    let is_full = |run: &&RunRecord| run.steps == longest || which.is_of_several();
    let full: Vec<RunRecord> = runs.iter().filter(is_full).cloned().collect();
    let links = experiment.links();
    let summary = summarize(&full, &links)?;
    let content = Content {
        which,
        tables: tables(which, &summary, &full)?,
        charts: charts(which, &summary, runs, &full)?,
        setup: match which {
            Reproduction::SbcTable2(row) => row.setup(experiment, &full[0]),
            Reproduction::SbcGrid => sbc::Row::ResNet32.setup(experiment, &full[0]),
            Reproduction::AdaComp(study) => study.setup(&full[0], experiment.seeds.len()),
            Reproduction::Entropy(study) => study.setup(&full[0], experiment.seeds.len()),
            Reproduction::Grace(study) => study.setup(&full[0], experiment.seeds.len()),
            Reproduction::Table1 | Reproduction::Table2 => setup(experiment, &full[0]),
        },
        notes: notes(which, &summary),
        command,
    };
    let mut files = vec![
        ("README.md".to_owned(), content.markdown()),
        ("report.html".to_owned(), content.html()),
    ];
    let svg = content.charts.iter().map(|(name, chart)| (name.clone(), chart.svg_file()));
    files.extend(svg);
    Ok(files)
}

/// Figures with the names of their files.
pub(super) type Charts = Vec<(String, Box<dyn Figure>)>;

struct Content<'a> {
    which: Reproduction,
    tables: Vec<(&'static str, Grid)>,
    charts: Charts,
    setup: Grid,
    notes: Vec<String>,
    command: &'a str,
}

impl Content<'_> {
    fn markdown(&self) -> String {
        let mut text = format!(
            "# {}: {}\n\n{}.\n",
            self.which.id(),
            self.which.summary(),
            self.which.citation()
        );
        for (heading, grid) in &self.tables {
            text.push_str(&format!("\n## {heading}\n\n{}", grid.markdown()));
        }
        text.push('\n');
        for note in &self.notes {
            text.push_str(&format!("- {note}\n"));
        }
        text.push_str(&format!("\n## What differs in the set-up\n\n{}", self.setup.markdown()));
        text.push_str("\n## Charts\n\n");
        for (name, chart) in &self.charts {
            text.push_str(&format!("![{}]({name})\n", chart.title()));
        }
        text.push_str(&format!("\n## To repeat it\n\n```\n{}\n```\n", self.command));
        text
    }

    fn html(&self) -> String {
        let mut page = Page::new(&format!("{}: {}", self.which.id(), self.which.summary()));
        page.paragraph(&format!("{}.", self.which.citation()));
        for (heading, grid) in &self.tables {
            page.section(heading).grid(grid);
        }
        page.notes(&self.notes);
        page.section("Charts").charts(self.charts.iter().map(|(_, chart)| &**chart));
        page.section("What differs in the set-up").grid(&self.setup);
        page.section("To repeat it").code(self.command);
        page.html()
    }
}

/// The paper's table beside ours, of runs of one length.
///
/// # Errors
/// If it needs a measurement that fails.
pub fn paper_table(
    which: Reproduction,
    summary: &Summary,
    full: &[RunRecord],
) -> Result<Grid, TestbedError> {
    Ok(match which {
        Reproduction::Table1 => table_1(summary),
        Reproduction::Table2 => table_2(summary),
        Reproduction::SbcTable2(row) => row.table(summary),
        Reproduction::SbcGrid => table::traffic(summary),
        Reproduction::AdaComp(study) => study.table(summary, full),
        Reproduction::Entropy(study) => study.table(summary, full),
        Reproduction::Grace(study) => study.table(summary, full)?,
    })
}

fn tables(
    which: Reproduction,
    summary: &Summary,
    full: &[RunRecord],
) -> Result<Vec<(&'static str, Grid)>, TestbedError> {
    let heading = match which {
        Reproduction::Table1 => "Table 1, paper and here",
        Reproduction::Table2 => "Table 2, paper and here",
        Reproduction::SbcTable2(_) => "Table II, paper and here",
        Reproduction::SbcGrid => "All cells",
        Reproduction::AdaComp(_) | Reproduction::Entropy(_) => "Paper and here",
        Reproduction::Grace(_) => "Measured",
    };
    let mut tables = vec![(heading, paper_table(which, summary, full)?)];
    if which.is_of_several() {
        return Ok(tables);
    }
    if which != Reproduction::SbcGrid {
        tables.push(("Quality and traffic", table::traffic(summary)));
    }
    if matches!(which, Reproduction::SbcTable2(_) | Reproduction::SbcGrid) {
        tables.push(("Bytes sent, by equation 1 and counted", accounting::equation_1(full)));
    }
    tables.push(("Time a step", table::time(summary)));
    Ok(tables)
}

fn notes(which: Reproduction, summary: &Summary) -> Vec<String> {
    if let Reproduction::Grace(super::grace::Study::Figure8(_)) = which {
        return vec![scaling::NOTE.to_owned()];
    }
    if which.is_of_several() {
        return vec![diagnosis::NOTE.to_owned()];
    }
    let mut notes = table::notes(summary);
    if matches!(which, Reproduction::SbcTable2(_) | Reproduction::SbcGrid) {
        notes.push(accounting::NOTE.to_owned());
    }
    notes
}

fn charts(
    which: Reproduction,
    summary: &Summary,
    runs: &[RunRecord],
    full: &[RunRecord],
) -> Result<Charts, TestbedError> {
    let mut charts: Charts = Vec::new();
    if which == Reproduction::SbcGrid {
        charts.push(("heat-map.svg".to_owned(), Box::new(sbc::heat_map(summary))));
        return Ok(charts);
    }
    match which {
        Reproduction::AdaComp(study) => charts.extend(study.charts(full)),
        Reproduction::Entropy(study) => charts.extend(study.charts(full)),
        Reproduction::Grace(study) => charts.extend(study.charts(summary, full)?),
        _ => {}
    }
    if matches!(which, Reproduction::Entropy(_)) || which.is_of_several() {
        return Ok(charts);
    }
    if which == Reproduction::Table1 {
        for &link in &summary.links {
            let name = bandwidth(link.bits_per_second).replace([' ', '/'], "-").to_lowercase();
            let chart = figures::quality_by_length(runs, link)?;
            charts.push((format!("time-{name}.svg"), Box::new(chart)));
        }
    }
    if which != Reproduction::Table2 {
        charts.push(("loss.svg".to_owned(), Box::new(figures::loss(full))));
        let name = format!("{}.svg", summary.metric.name().replace(' ', "-"));
        charts.push((name, Box::new(figures::quality(full))));
    }
    if matches!(which, Reproduction::SbcTable2(_)) {
        charts.push(("bytes.svg".to_owned(), Box::new(figures::quality_over_bytes(full))));
    }
    charts.push(("bits.svg".to_owned(), Box::new(figures::bits_per_value(full))));
    Ok(charts)
}

/// The paper's set-up beside the one of the runs.
fn setup(experiment: &Experiment, run: &RunRecord) -> Grid {
    let epochs = |steps: f64, workers: f64, batch: f64, examples: f64| {
        format!("{steps:.0} ({:.2} epochs)", steps * workers * batch / examples)
    };
    let mut grid = Grid::new(["", "paper", "here"]);
    let mut row = |what: &str, paper: &str, here: String| {
        grid.push(vec![what.to_owned(), paper.to_owned(), here]);
    };
    row("model", "ResNet-110", format!("{} ({} parameters)", run.model, run.parameters));
    row("data", "CIFAR-10", run.data.clone());
    row("workers", "10", run.workers.to_string());
    row("exchange", "1 parameter server", run.exchange.clone());
    row("images a worker and step", "32", run.batch.to_string());
    row("steps", &epochs(25_600.0, 10.0, 32.0, 50_000.0), run.steps.to_string());
    row("optimizer", "momentum 0.9", run.optimizer.clone());
    row("weight decay", "0.0001", run.weight_decay.to_string());
    row(
        "learning rate",
        "cosine from 1 to 0.01 (0.1 to 0.001, times 10)",
        run.learning_rate.clone(),
    );
    row("crop and flip", "yes", if run.augment { "yes" } else { "no" }.to_owned());
    row(
        "uncompressed",
        "batch normalisation",
        format!(
            "tensors below {} elements{}",
            experiment.raw_below,
            if experiment.raw_vectors { ", vectors" } else { "" }
        ),
    );
    row("runs", "3 to 5 a design", format!("{} a design", experiment.seeds.len()));
    row("computing", "GTX 980 a worker", "one processor core a worker".to_owned());
    row("network", "throttled by Linux Traffic Control", "modelled from counted bytes".to_owned());
    grid.left_aligned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn each_reproduction_writes_tables_and_charts() {
        let mut half = synthetic::run("3lc", 1);
        half.steps = 5;
        let runs = [synthetic::run("none", 1), half, synthetic::run("3lc", 1)];
        for (which, charts) in [(Reproduction::Table1, 6), (Reproduction::Table2, 1)] {
            let files = files(which, &which.experiment(), &runs, "gradwire reproduce").unwrap();
            let named =
                |ending: &str| files.iter().filter(|(name, _)| name.ends_with(ending)).count();
            assert_eq!((named(".svg"), named(".md"), named(".html")), (charts, 1, 1));
            let readme = &files[0].1;
            assert!(readme.contains("arXiv:1802.07389") && readme.contains("163.84 epochs"));
            assert!(files.iter().skip(2).all(|(name, _)| readme.contains(name.as_str())));
        }
        let adacomp = Reproduction::AdaComp(crate::reproduce::adacomp::Study::Figure4);
        let entropy = Reproduction::Entropy(crate::reproduce::entropy::Study::Figure5);
        let shapes = Reproduction::AdaComp(crate::reproduce::adacomp::Study::Figure7);
        for (which, charts, paper) in
            [(adacomp, 4, "AAAI 2018"), (shapes, 2, "AAAI 2018"), (entropy, 3, "ICASSP 2015")]
        {
            let files = files(which, &which.experiment(), &runs, "gradwire reproduce").unwrap();
            let svgs = files.iter().filter(|(name, _)| name.ends_with(".svg")).count();
            assert_eq!(svgs, charts);
            assert!(files[0].1.contains(paper));
        }
        for (which, charts) in
            [(Reproduction::SbcTable2(sbc::Row::CharLstm), 4), (Reproduction::SbcGrid, 1)]
        {
            let files = files(which, &which.experiment(), &runs, "gradwire reproduce").unwrap();
            let svgs = files.iter().filter(|(name, _)| name.ends_with(".svg")).count();
            assert_eq!(svgs, charts);
            assert!(files[0].1.contains("arXiv:1805.08768"));
        }
        assert!(files(Reproduction::Table1, &Reproduction::Table1.experiment(), &[], "").is_err());
    }
}
