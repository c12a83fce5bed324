//! The folders of results in this repository: pages, experiment files and runs.

use std::path::{Path, PathBuf};

use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::reproduce::{STUDIES, Study};
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
