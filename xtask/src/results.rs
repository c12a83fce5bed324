//! `cargo xtask results`: repeats the committed runs, folder by folder, with low priority.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The folder for the tables. A folder of results that has a table for this commit is not checked
/// again.
const REPORTS: &str = "target/results";

/// Checks these folders of results, or all.
pub(crate) fn run(folders: &[String]) -> ExitCode {
    let chosen: Vec<PathBuf> = match folders {
        [] => below(Path::new("results")),
        _ => folders.iter().flat_map(|folder| below(Path::new(folder))).collect(),
    };
    match check_all(&chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all runs of these folders repeat.
fn check_all(folders: &[PathBuf]) -> Result<bool, String> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "gradwire-cli"])
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.success() {
        return Err("gradwire cannot be built".to_owned());
    }
    let version = version()?;
    fs::create_dir_all(REPORTS).map_err(|error| format!("{REPORTS}: {error}"))?;
    let mut all_repeat = true;
    for folder in folders {
        let report = report_of(folder);
        let known = fs::read_to_string(&report).unwrap_or_default();
        let (text, repeats) = match known.strip_prefix(&version) {
            // A changed source tree has no commit of its own.
            Some(text) if !version.contains(".modified") => {
                (text.to_owned(), text.trim_end().ends_with(REPEATS))
            }
            _ => check(folder, &version)?,
        };
        println!("{}\n{}\n", folder.display(), text.trim());
        all_repeat &= repeats;
    }
    Ok(all_repeat)
}

/// The last line of the report of a folder whose runs repeat.
const REPEATS: &str = "No run differs.";

/// Checks one folder, and writes its report. Returns the table, and whether no run differs.
fn check(folder: &Path, version: &str) -> Result<(String, bool), String> {
    let output = Command::new("nice")
        .args(["-n", "19", "target/release/gradwire", "reproduce", "--check"])
        .arg(folder)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start nice: {error}"))?;
    let repeats = output.status.success();
    let table = String::from_utf8_lossy(&output.stdout);
    let end = if repeats { REPEATS } else { "Some runs above differ, or no run could be checked." };
    let text = format!("\n{table}\n{end}\n");
    // An interrupted check leaves no table and is repeated.
    if !table.trim().is_empty() {
        let path = report_of(folder);
        fs::write(&path, format!("{version}{text}"))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((text, repeats))
}

/// The version of the release binary, with its commit.
fn version() -> Result<String, String> {
    let output = Command::new("target/release/gradwire").arg("--version").output();
    let output = output.map_err(|error| format!("cannot start gradwire: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn report_of(folder: &Path) -> PathBuf {
    let name = folder.to_string_lossy().replace(['/', '\\'], "+");
    Path::new(REPORTS).join(format!("{name}.txt"))
}

/// The folders with runs of the trainer, from this one down, in order. The check of a folder
/// includes its subfolders.
fn below(folder: &Path) -> Vec<PathBuf> {
    let runs = fs::read_to_string(folder.join("runs.jsonl")).unwrap_or_default();
    if runs.contains("\"data_checksum\"") {
        return vec![folder.to_owned()];
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort_unstable();
    folders.iter().flat_map(|folder| below(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_runs_of_the_trainer_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let found = below(&root);
        let has = |name: &str| found.contains(&root.join(name));
        assert!(has("3lc-table1/mnist-lenet5") && has("transformer-frontier"));
        assert!(!has("pytorch-links") && !has("3lc-table1") && !has("transformer-frontier/rates"));
        assert_eq!(
            report_of(Path::new("results/a/b")),
            Path::new("target/results/results+a+b.txt")
        );
    }
}
