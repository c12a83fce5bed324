//! The folders of results in this repository: pages, experiment files and runs.

use std::path::{Path, PathBuf};

use gradwire_train::RunRecord;

use super::Nobody;
use crate::experiment::Experiment;
use crate::reproduce::{Results, STUDIES, Study, find};
use crate::results;
use crate::runner::differences;

/// The files with this name in a folder and its subfolders.
fn files_in(folder: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let of_entry = |path: PathBuf| match path.ends_with(name) {
        true => vec![path],
        false => files_in(&path, name),
    };
    entries.flat_map(|entry| of_entry(entry.unwrap().path())).collect()
}

/// The folder of the results of this repository.
fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results")
}

#[test]
fn pages_show_the_notes_of_their_folders() {
    let notes = files_in(&committed(), "notes.md");
    assert!(notes.len() > 10);
    for path in notes {
        let folder = path.parent().unwrap();
        let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let notes = crate::results::notes(folder).unwrap();
        let (opening, more) = notes.split_once("\n\n").unwrap_or((&notes, ""));
        let (_, page) = page.split_once("\n\n").unwrap();
        assert!(page.starts_with(opening.trim_end()), "{}", path.display());
        assert!(page.contains(more.trim_end()), "{}", path.display());
    }
}

/// The first lines of a page: what was asked, what was found, and how far that can be trusted.
#[test]
fn pages_open_with_question_answer_and_certainty() {
    for path in files_in(&committed(), "README.md") {
        let page = std::fs::read_to_string(&path).unwrap();
        if path == committed().join("README.md") {
            continue;
        }
        let (_, page) = page.split_once("\n\n").unwrap();
        let (opening, _) = page.split_once("\n\n").unwrap();
        let starts: Vec<_> =
            opening.split("\n- ").filter_map(|line| Some(line.split_once(":**")?.0)).collect();
        assert_eq!(starts, ["- **Question", "**Answer", "**How sure"], "{}", path.display());
    }
}

/// The table on the first screen of the results counts the verdicts of the papers' tables.
#[test]
fn verdicts_are_counted() {
    const VERDICTS: [&str; 4] = ["reproduced", "direction holds", "not reproduced", "not run"];
    let page = std::fs::read_to_string(committed().join("README.md")).unwrap();
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = |text: &str| -> Vec<Vec<String>> {
        text.lines().filter(|line| line.starts_with("| ")).skip(1).map(cells).collect()
    };
    let (first, others) = page.split_once("\n## ").unwrap();
    for row in rows(first) {
        let paper = row[1].trim_start_matches('[').split_once(']').unwrap().0;
        let (_, section) = others.split_once(&format!("\n## {paper}\n")).unwrap();
        let section = section.split_once("\n## ").unwrap().0;
        let verdicts: Vec<_> = rows(section).into_iter().map(|row| row[6].clone()).collect();
        let counted = VERDICTS.map(|verdict| {
            verdicts.iter().filter(|text| text.starts_with(verdict)).count().to_string()
        });
        assert_eq!(row[2..6], counted, "{paper}");
        assert_eq!(
            counted.iter().map(|n| n.parse::<usize>().unwrap()).sum::<usize>(),
            verdicts.len()
        );
    }
}

#[test]
fn experiments_that_studies_have_written_keep_what_the_studies_fix() {
    let results = committed();
    let mut checked = 0;
    for study in STUDIES.iter().filter(|study| !study.fixed.is_empty()) {
        for file in files_in(&results.join(study.id), "experiment.toml") {
            let row = file.iter().find_map(|name| study.row(name.to_str()).ok());
            let experiment = Experiment::read(&file).unwrap();
            study.check_fixed(row.unwrap_or(0), &experiment).unwrap();
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked}");
}

/// The text of an experiment file without a comment on its first line.
fn without_comment(text: &str) -> &str {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with('#') => rest,
        _ => text,
    }
}

#[test]
fn experiment_files_of_results_have_every_key() {
    let files = files_in(&committed(), "experiment.toml");
    assert!(files.len() > 40);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let written = Experiment::read(&file).unwrap().to_toml();
        assert_eq!(without_comment(&text), written, "{}", file.display());
    }
}

/// The folder of a study's results, and the content of its page.
struct Repeated {
    folder: PathBuf,
    page: String,
    study: &'static Study,
    row: usize,
    /// The number of workers in the command.
    workers: Option<usize>,
    /// Whether the command starts as many processes as a run has workers.
    under_mpi: bool,
}

impl Repeated {
    /// The folder of a page; `None` if no study that trains made it.
    fn of(page: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(page).unwrap();
        let id = text.strip_prefix("# ")?.split_once(": ")?.0;
        let study = STUDIES.iter().find(|study| study.id == id && study.experiment.is_some())?;
        let (_, command) = text.split_once("## How to repeat the runs").unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        let value = |flag| words.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1]);
        let (row, workers) = (value("--row"), value("--workers"));
        let under_mpi = words.contains(&"mpiexec");
        Some(Self {
            folder: page.parent().unwrap().to_owned(),
            study,
            row: study.row(row).unwrap(),
            workers: workers.map(|workers| workers.parse().unwrap()),
            under_mpi,
            page: text,
        })
    }

    /// The runs of its folder in the order in which the study shows them.
    fn runs(&self, experiment: &Experiment) -> Vec<RunRecord> {
        let mut left = results::read(&self.folder.join("runs.jsonl")).unwrap();
        let steps = left.iter().map(|run| run.steps).max().unwrap_or(experiment.steps);
        let whole = experiment.clone().with(|e| {
            e.steps = if e.epochs.is_some() { steps } else { e.steps };
            e.compressors = self.study.compressors(self.row, e.steps);
        });
        let mut runs = Vec::new();
        for variant in (self.study.variants)(self.row, &whole, self.workers) {
            let position = |run: &RunRecord| {
                variant.compressors.iter().position(|one| one.to_string() == run.compressor)
            };
            let is_mine = |run: &RunRecord| {
                let settings = variant.settings();
                position(run).is_some() && differences(&settings, &run.settings).next().is_none()
            };
            let (mut mine, others) = left.into_iter().partition::<Vec<_>, _>(is_mine);
            mine.sort_by_key(|run| (position(run), run.steps, run.seed));
            runs.extend(mine);
            left = others;
        }
        runs.extend(left);
        runs
    }

    /// The charts that the study makes from its folder.
    fn charts(&self) -> Vec<(String, String)> {
        let experiment = Experiment::read(&self.folder.join("experiment.toml")).unwrap();
        charts(self, &experiment, &self.runs(&experiment))
    }

    /// Whether the study makes this run from an experiment.
    fn makes(&self, experiment: &Experiment, run: &RunRecord) -> bool {
        let workers = if self.under_mpi { Some(run.workers) } else { self.workers };
        let variants = (self.study.variants)(self.row, experiment, workers);
        variants.iter().any(|variant| {
            let has = variant.compressors.iter().any(|one| one.to_string() == run.compressor);
            // A study may train for fractions of the steps. A deadline changes no result.
            has && (variant.epochs.is_some() || run.steps <= variant.steps)
                && variant.evaluate_at_most == run.evaluate_at_most
                && differences(&variant.settings(), &run.settings).next().is_none()
        })
    }
}

/// The names and contents of the charts of a study's page.
fn charts(
    Repeated { study, row, folder, .. }: &Repeated,
    experiment: &Experiment,
    runs: &[RunRecord],
) -> Vec<(String, String)> {
    let (row, failed, out, command, notes) = (*row, &[], folder, "", "");
    let results = Results { study, row, experiment, runs, failed, out, command, notes };
    let files = results.report(&Nobody).unwrap().files;
    files.into_iter().filter(|(name, _)| name.ends_with(".svg")).collect()
}

#[test]
fn experiment_files_have_every_setting_of_the_runs_of_studies() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for page in files_in(&committed(), "README.md") {
        let Some(repeated) = Repeated::of(&page) else { continue };
        let file = repeated.folder.join("experiment.toml");
        assert!(repeated.page.contains("/experiment.toml`, every setting"), "{}", page.display());
        let experiment = Experiment::read(&file).unwrap();
        for run in results::read(&repeated.folder.join("runs.jsonl")).unwrap() {
            if !(experiment.seeds.contains(&run.seed) && repeated.makes(&experiment, &run)) {
                wrong.push(format!("{}: {}, seed {}", page.display(), run.compressor, run.seed));
            }
        }
        checked += 1;
    }
    assert!(wrong.is_empty() && checked > 30, "{checked} folders; {}", wrong.join("\n"));
}

/// Folders with a chart of each kind: lines, boxes, a heat map, and separate lengths of runs.
const CHARTED: [&str; 3] = ["entropy-bits-fig5/mnist", "sbc-fig3/mnist-lenet5", "3lc-table2"];

/// With `GRADWIRE_WRITE_CHARTS` all charts are drawn again; without it some are compared.
#[test]
fn committed_charts_are_drawn_by_this_code() {
    let writes = std::env::var_os("GRADWIRE_WRITE_CHARTS").is_some();
    let folders = if writes { vec![""] } else { CHARTED.to_vec() };
    let pages = folders.iter().flat_map(|folder| files_in(&committed().join(folder), "README.md"));
    let mut drawn = 0;
    if writes {
        // Simulations, without runs.
        let (study, folder) = (find("clusters").unwrap(), committed().join("clusters"));
        let page = String::new();
        let simulated = Repeated { folder, page, study, row: 0, workers: None, under_mpi: false };
        for (name, svg) in charts(&simulated, &Experiment::default(), &[]) {
            std::fs::write(simulated.folder.join(name), svg).unwrap();
        }
    }
    // This study measures the time on the wire when it makes its page.
    let drawn_again = |one: &Repeated| one.study.id != "grace-fig8";
    for repeated in pages.filter_map(|page| Repeated::of(&page)).filter(drawn_again) {
        for (name, svg) in repeated.charts() {
            let file = repeated.folder.join(name);
            match writes {
                true => std::fs::write(&file, svg).unwrap(),
                false => {
                    let kept = std::fs::read_to_string(&file).unwrap();
                    assert!(
                        kept == svg,
                        "{}: GRADWIRE_WRITE_CHARTS=1 draws it again",
                        file.display()
                    );
                }
            }
            drawn += 1;
        }
    }
    assert!(drawn >= 5, "{drawn}");
}
