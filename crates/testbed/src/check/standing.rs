//! Tells which committed runs were made by the arithmetic of this source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gradwire_train::{CompressionSchedule, RunRecord, changed_parts, marks};

use super::find;
use crate::TestbedError;
use crate::table::Table;

/// A table with a row for each folder of results: the number of its runs, and the verdict of their
/// marks.
///
/// # Errors
/// As [`find`].
pub fn standing(results: &Path) -> Result<Table, TestbedError> {
    let mut folders: BTreeMap<String, Vec<RunRecord>> = BTreeMap::new();
    for run in find(results)?.runs {
        let name = run.folder.strip_prefix(results).unwrap_or(&run.folder).display().to_string();
        folders.entry(name).or_default().push(run.record);
    }
    let mut table = Table::new(["folder", "runs", "made by"]).left_aligned();
    for (folder, runs) in folders {
        table.push([format!("[{folder}]({folder})"), runs.len().to_string(), made_by(&runs)]);
    }
    Ok(table)
}

/// The verdict of the marks of runs.
fn made_by(runs: &[RunRecord]) -> String {
    let (marked, unmarked): (Vec<_>, Vec<_>) =
        runs.iter().partition(|run| !run.numerics.is_empty());
    let mut parts = BTreeSet::new();
    let mut others = 0;
    for run in &marked {
        let changed = changed(run);
        others += usize::from(!changed.is_empty());
        parts.extend(changed);
    }
    let said = |count: usize, what: String| {
        let whose = if count == runs.len() { String::new() } else { format!("{count}: ") };
        (count > 0).then(|| format!("{whose}{what}"))
    };
    let parts: Vec<String> = parts.into_iter().collect();
    let texts = [
        said(marked.len() - others, "the arithmetic of this source".to_owned()),
        said(others, format!("another {}", parts.join(", "))),
        said(unmarked.len(), "a source before marks".to_owned()),
    ];
    texts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The parts of gradwire that have changed since a run was made.
fn changed(run: &RunRecord) -> Vec<String> {
    match run.compressor.parse::<CompressionSchedule>() {
        Ok(compressor) => {
            let now = marks(&run.settings, &compressor);
            changed_parts(&run.numerics, &now).into_iter().map(str::to_owned).collect()
        }
        Err(_) => vec!["compressor".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn a_folder_says_which_parts_have_changed_and_how_many_runs_have_no_marks() {
        let old = synthetic::run("none", 0);
        let settings = old.settings.clone();
        let new = RunRecord {
            numerics: marks(&settings, &"none".parse().unwrap()),
            ..synthetic::run("none", 1)
        };
        let mut other = new.clone();
        other.numerics.insert("wire format".to_owned(), "0".repeat(16));
        other.numerics.insert("model".to_owned(), "1".repeat(16));
        assert_eq!(made_by(std::slice::from_ref(&old)), "a source before marks");
        assert_eq!(made_by(&[new.clone(), new.clone()]), "the arithmetic of this source");
        assert_eq!(
            made_by(&[new, other, old]),
            "1: the arithmetic of this source; 1: another model, wire format; 1: a source before marks"
        );
    }
}
