//! The runs in a folder of results.

use std::fs;
use std::path::{Path, PathBuf};

use gradwire_train::RunRecord;

use crate::TestbedError;
use crate::results;

/// A run in a file of results.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The folder of its file.
    pub folder: PathBuf,
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its record.
    pub record: RunRecord,
}

impl Committed {
    /// Its folder, line, compressor, and the other settings that differ between the runs of some
    /// folders.
    pub fn title(&self) -> String {
        let Self { folder, line, record } = self;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "{name} {line}: {}, seed {}, {} steps",
            record.compressor, record.seed, record.steps
        )
    }

    /// Whether `name` is its line or its compressor.
    pub fn is_called(&self, name: &str) -> bool {
        name == self.line.to_string() || name == self.record.compressor
    }

    /// Whether its compressor, or the first of its schedule, has this name, with any parameters.
    pub fn is_of(&self, compressor: &str) -> bool {
        self.record.compressor.split([':', ' ']).next() == Some(compressor)
    }
}

/// The content of a folder of results.
#[derive(Debug, Default)]
pub struct Found {
    /// The runs, by folder and line.
    pub runs: Vec<Committed>,
    /// Files with runs of other programs, such as the PyTorch hooks.
    pub others: Vec<PathBuf>,
}

/// Finds the runs in each `runs.jsonl` of a folder and its subfolders.
///
/// # Errors
/// If a folder or a file cannot be read, or a file has a line that is not a run.
pub fn find(folder: &Path) -> Result<Found, TestbedError> {
    let mut found = Found::default();
    collect(folder, &mut found)?;
    Ok(found)
}

fn collect(folder: &Path, found: &mut Found) -> Result<(), TestbedError> {
    let file = folder.join("runs.jsonl");
    if file.is_file() {
        match is_of_trainer(&file)? {
            true => {
                let runs = results::read(&file)?.into_iter().zip(1..);
                found.runs.extend(runs.map(|(record, line)| Committed {
                    folder: folder.to_owned(),
                    line,
                    record,
                }));
            }
            false => found.others.push(file),
        }
    }
    let entries = fs::read_dir(folder).map_err(TestbedError::read(folder))?;
    let mut below: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    below.sort_unstable();
    below.iter().try_for_each(|folder| collect(folder, found))
}

/// Whether the first line of a file is a run of the trainer, or damaged. Other programs write no
/// digest of parameters.
fn is_of_trainer(file: &Path) -> Result<bool, TestbedError> {
    let text = fs::read_to_string(file).map_err(TestbedError::read(file))?;
    let first: Option<serde_json::Value> =
        text.lines().next().and_then(|line| serde_json::from_str(line).ok());
    Ok(first.is_none_or(|run| run.get("data_checksum").is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn runs_are_found_in_folders_below_and_those_of_other_programs_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 2)];
        for name in ["b", "a/deep"] {
            results::write(&folder.path().join(name).join("runs.jsonl"), &runs).unwrap();
        }
        let other = folder.path().join("hooks/runs.jsonl");
        crate::files::write_atomic(&other, b"{\"hook\": \"powerSGD\"}\n").unwrap();
        let found = find(folder.path()).unwrap();
        let titles: Vec<String> = found.runs.iter().map(Committed::title).collect();
        assert_eq!(titles[1..3], ["deep 2: 3lc, seed 2, 10 steps", "b 1: none, seed 1, 10 steps"]);
        assert_eq!((titles.len(), found.others), (4, vec![other.clone()]));
        let one = &found.runs[1];
        assert!(one.is_called("2") && one.is_called("3lc") && !one.is_called("none"));
        let schedule = synthetic::run("dgc:ratio=0.01 from ratio=0.25 over 0.2", 0);
        let schedule = Committed { record: schedule, ..one.clone() };
        assert!(schedule.is_of("dgc") && !schedule.is_of("dg") && !schedule.is_called("dgc"));
        fs::write(&other, "{").unwrap();
        assert!(find(folder.path()).unwrap_err().to_string().contains("line 1"));
    }
}
