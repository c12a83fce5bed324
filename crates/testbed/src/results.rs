//! Result files: one run per line, as JSON.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gradwire::registry::place_of;
use gradwire::{files, printable};
use gradwire_train::settings::TrainingSettings;
use gradwire_train::{RunRecord, SentCounts, StepRecord};

use crate::TestbedError;
use crate::files::write_atomic;
use crate::records::Records;

/// Reads the finished runs in `path`; none if there is no such file.
///
/// # Errors
/// If the file cannot be read, or has a line that is not a record.
pub fn read(path: &Path) -> Result<Vec<RunRecord>, TestbedError> {
    Ok(read_all(path)?.runs)
}

/// Reads the records in `path`; none if there is no such file.
///
/// # Errors
/// As for [`read`].
pub fn read_all(path: &Path) -> Result<Records, TestbedError> {
    let text = text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut records = Records::default();
    for (at, line) in lines {
        add(&mut records, line).map_err(|reason| {
            TestbedError::Config(format!(
                "{}, line {}: not a run ({}); remove the line to repeat the run",
                printable(path.display()),
                at + 1,
                printable(reason)
            ))
        })?;
    }
    Ok(records)
}

/// Adds the record of a line.
fn add(records: &mut Records, line: &str) -> Result<(), String> {
    /// The field that only runs that diverged have.
    #[derive(serde::Deserialize)]
    struct Failed {
        diverged: Option<serde::de::IgnoredAny>,
    }
    let damaged = |error: serde_json::Error| error.to_string();
    if serde_json::from_str::<Failed>(line).map_err(damaged)?.diverged.is_some() {
        records.diverged.push(serde_json::from_str(line).map_err(damaged)?);
        return Ok(());
    }
    let run = serde_json::from_str(line).map_err(damaged)?;
    check_numbers(&run)?;
    records.runs.push(run);
    Ok(())
}

/// Refuses a run with impossible numbers. The error names the field.
fn check_numbers(run: &RunRecord) -> Result<(), String> {
    let mut counts =
        vec![("bytes_up", run.bytes_up), ("bytes_down", run.bytes_down), ("seconds", run.seconds)];
    for step in &run.trace {
        let StepRecord { bytes_up, bytes_down, bytes_busiest, .. } = *step;
        counts.extend([
            ("bytes_up of a step", bytes_up),
            ("bytes_down of a step", bytes_down),
            ("bytes_busiest of a step", bytes_busiest),
        ]);
        let StepRecord {
            compute,
            compress,
            decompress,
            update,
            wire,
            wall,
            background,
            waited,
            ..
        } = *step;
        let times = [compute, compress, decompress, update, wire, wall, background, waited];
        counts.extend(times.map(|time| ("a time of a step", time)));
    }
    let SentCounts { sparse, dense, raw, position_bits } = run.sent;
    counts.extend(
        [sparse, dense, raw, position_bits].map(|count| ("a count of what was sent", count)),
    );
    counts.extend(run.server.map(|time| ("server", time)));
    if run.parameters == 0 || run.steps == 0 || run.workers == 0 {
        return Err("parameters, steps and workers are at least 1".to_owned());
    }
    let bad = counts.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0));
    if let Some((field, value)) = bad {
        return Err(format!("{field} is {value}, but must be a number of at least 0"));
    }
    let qualities = run.evaluations.iter().map(|one| ("the quality of an evaluation", one.quality));
    let bad = qualities.chain([("quality", run.quality)]).find(|(_, value)| !value.is_finite());
    match bad {
        Some((field, value)) => Err(format!("{field} is {value}, but must be a finite number")),
        None => Ok(()),
    }
}

/// The text of `notes.md` in a folder of results; empty without such a file.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn notes(folder: &Path) -> Result<String, TestbedError> {
    text(&folder.join("notes.md"))
}

/// The text of a file; empty if there is no such file.
fn text(path: &Path) -> Result<String, TestbedError> {
    match files::read_text(path, u64::MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(TestbedError::read(path)),
    }
}

/// A copy of `run` for a result file: its trace is [thinned](thin) to `points` entries, and its
/// numbers are rounded to their significant digits. Reading such a file gives the same runs, bit
/// for bit.
pub fn compact(run: &RunRecord, points: usize) -> RunRecord {
    let mut run = thin(run, points);
    run.seconds = rounded(run.seconds, 6);
    let exact = [&mut run.quality, &mut run.bytes_up, &mut run.bytes_down];
    exact.into_iter().for_each(|value| *value = rounded(*value, 12));
    for evaluation in &mut run.evaluations {
        evaluation.quality = rounded(evaluation.quality, 12);
        evaluation.loss = rounded(evaluation.loss, 6);
    }
    // Only the last histogram is shown.
    let shown = run.diagnoses.len().saturating_sub(1);
    for layer in run.diagnoses[..shown].iter_mut().flat_map(|diagnosis| &mut diagnosis.layers) {
        layer.histogram = None;
    }
    for step in &mut run.trace {
        for value in values(step) {
            *value = rounded(*value, 6);
        }
    }
    run
}

/// `value` with `digits` significant digits.
fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// The measured values of a step, without `sent`, which is recorded for the whole run.
fn values(step: &mut StepRecord) -> [&mut f64; 13] {
    macro_rules! all_but_step_and_sent {
        ($($field:ident)+) => {{
            let StepRecord { step: _, sent: _, $($field),+ } = step;
            [$($field),+]
        }};
    }
    all_but_step_and_sent! {
        loss learning_rate bytes_up bytes_down bytes_busiest compute compress decompress update wire wall background
        waited
    }
}

/// Writes `runs` to `path`, in place of its content.
pub fn write(path: &Path, runs: &[RunRecord]) -> Result<(), TestbedError> {
    write_atomic(path, lines(runs).as_bytes())
}

/// Writes records to `path`, in place of its content: first the finished runs, then those that
/// diverged, both in the registry's order of compressors, then by spec, model and seed.
pub fn write_all(path: &Path, records: &Records) -> Result<(), TestbedError> {
    let mut records = records.clone();
    let key = |compressor: &str, settings: &TrainingSettings, seed| {
        (place_of(compressor), compressor.to_owned(), settings.model.to_string(), seed)
    };
    records.runs.sort_by_cached_key(|run| key(&run.compressor, &run.settings, run.seed));
    records.diverged.sort_by_cached_key(|run| key(&run.compressor, &run.settings, run.seed));
    let text = lines(&records.runs) + &lines(&records.diverged);
    write_atomic(path, text.as_bytes())
}

/// A line of JSON for each record.
fn lines<T: serde::Serialize>(records: &[T]) -> String {
    let line = |record: &T| {
        serde_json::to_string(record).expect("a record has no keys that are not strings") + "\n"
    };
    records.iter().map(line).collect()
}

/// Renames the file at `path`, if it exists: appends `.1`, or the next free number. Returns the new
/// name.
///
/// # Errors
/// The errors of the file system.
pub fn set_aside(path: &Path) -> Result<Option<PathBuf>, TestbedError> {
    let numbered = |number: u64| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let is_free = |name: &PathBuf| name.symlink_metadata().is_err();
    let Some(aside) = (1..).map(numbered).find(is_free) else { return Ok(None) };
    match std::fs::rename(path, &aside) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        renamed => renamed.map(|()| Some(aside)).map_err(TestbedError::write(path)),
    }
}

/// A copy of `run` whose trace has at most `points` entries: each is the mean over a window of
/// steps, with the number of the window's last step. The last window may be shorter.
pub fn thin(run: &RunRecord, points: usize) -> RunRecord {
    let window = run.trace.len().div_ceil(points.max(1)).max(1);
    let trace = run.trace.chunks(window).map(mean).collect();
    RunRecord { trace, ..run.clone() }
}

/// The mean of consecutive steps, with the number of the last.
fn mean(steps: &[StepRecord]) -> StepRecord {
    let mut sum = StepRecord::default();
    for step in steps {
        let mut step = *step;
        sum.step = step.step;
        for (total, value) in values(&mut sum).into_iter().zip(values(&mut step)) {
            *total += *value;
        }
    }
    values(&mut sum).into_iter().for_each(|total| *total /= steps.len() as f64);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn runs_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        assert!(read(&path).unwrap().is_empty());
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 2)];
        write(&path, &runs).unwrap();
        assert_eq!(read(&path).unwrap(), runs);
    }

    #[test]
    fn records_are_in_the_order_of_the_registry_whatever_order_they_come_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let all = [
            ("topk", 1),
            ("acme/unknown", 1),
            ("3lc", 2),
            ("3lc:s=1.5", 1),
            ("none", 3),
            ("3lc", 1),
        ];
        let records = Records {
            runs: all.map(|(compressor, seed)| synthetic::run(compressor, seed)).to_vec(),
            diverged: ["eden", "none"].map(|one| synthetic::diverged(one, 1)).to_vec(),
        };
        write_all(&path, &records).unwrap();
        let found = read_all(&path).unwrap();
        let runs: Vec<_> = found.runs.iter().map(|run| (&*run.compressor, run.seed)).collect();
        let expected = [
            ("none", 3),
            ("3lc", 1),
            ("3lc", 2),
            ("3lc:s=1.5", 1),
            ("topk", 1),
            ("acme/unknown", 1),
        ];
        assert_eq!(runs, expected);
        let diverged: Vec<_> = found.diverged.iter().map(|run| &*run.compressor).collect();
        assert_eq!(diverged, ["none", "eden"]);
    }

    #[test]
    fn no_file_that_was_set_aside_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        assert_eq!(set_aside(&path).unwrap(), None);
        for number in 1..=3 {
            std::fs::write(&path, number.to_string()).unwrap();
            let aside = folder.path().join(format!("runs.jsonl.{number}"));
            assert_eq!(set_aside(&path).unwrap().as_ref(), Some(&aside));
            assert_eq!(std::fs::read_to_string(aside).unwrap(), number.to_string());
        }
        assert!(!path.exists());
    }

    /// The result files of this repository, except files of the PyTorch hooks, which have other
    /// records.
    fn committed(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with("pytorch-") {
                committed(&path, found);
            } else if path.ends_with("runs.jsonl") {
                found.push(path);
            }
        }
    }

    #[test]
    fn the_results_of_this_repository_are_read_setting_by_setting() {
        use serde_json::Value;
        let mut files = Vec::new();
        committed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results"), &mut files);
        assert!(files.len() > 30);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let runs = read(&file).unwrap();
            assert_eq!(text.lines().count(), runs.len(), "{}", file.display());
            for (line, run) in text.lines().zip(&runs) {
                let said: Value = serde_json::from_str(line).unwrap();
                for setting in gradwire_train::settings::SETTINGS {
                    let (name, found) = (setting.name, setting.text(&run.settings));
                    match said.get(name) {
                        Some(Value::String(text)) => assert_eq!(found, *text, "{name}"),
                        Some(Value::Bool(on)) => assert_eq!(found, on.to_string(), "{name}"),
                        Some(Value::Number(x)) => {
                            assert_eq!(found.parse().ok(), x.as_f64(), "{name}")
                        }
                        Some(_) => {}
                        None => assert_eq!(found, "off", "{name}"),
                    }
                }
            }
        }
    }

    #[test]
    fn compact_runs_come_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut run = synthetic::run("none", 1);
        run.quality = 1.0 / 3.0;
        run.bytes_up = 1_380_000_123.25;
        for (at, step) in run.trace.iter_mut().enumerate() {
            step.loss = 1.0 / (at as f64 + 3.0);
            step.wire = 1e-7 / (at as f64 + 7.0);
        }
        let run = compact(&run, 200);
        assert_eq!(run.bytes_up, 1_380_000_123.25);
        assert_eq!(run.trace[0].loss, 0.333333);
        write(&path, std::slice::from_ref(&run)).unwrap();
        assert_eq!(read(&path).unwrap(), [run]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        write(&path, &[synthetic::run("none", 1)]).unwrap();
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"version\": \"0.1\"");
        std::fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn numbers_that_no_run_has_are_refused_with_their_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let refused = |change: fn(&mut RunRecord)| {
            let mut runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
            change(&mut runs[1]);
            write(&path, &runs).unwrap();
            read(&path).unwrap_err().to_string()
        };
        for (change, field) in [
            ((|run| run.bytes_up = -5.0) as fn(&mut RunRecord), "bytes_up is -5"),
            (|run| run.bytes_down = -0.5, "bytes_down is -0.5"),
            (|run| run.seconds = -1.0, "seconds is -1"),
            (|run| run.trace[0].bytes_up = -1.0, "bytes_up of a step"),
            (|run| run.trace[0].wall = -1.0, "a time of a step"),
        ] {
            let error = refused(change);
            assert!(error.contains(field) && error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn earlier_runs_are_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        set_aside(&path).unwrap();
        write(&path, &[synthetic::run("3lc", 1)]).unwrap();
        set_aside(&path).unwrap();
        assert!(read(&path).unwrap().is_empty());
        assert_eq!(read(&folder.path().join("runs.jsonl.1")).unwrap().len(), 1);
    }

    #[test]
    fn thinning_averages_windows_and_keeps_the_last_step() {
        let mut run = synthetic::run("none", 1);
        run.trace = (0..5)
            .map(|step| StepRecord { step, bytes_up: step as f64 * 10.0, ..Default::default() })
            .collect();
        // Five steps in two points: windows of three and of two.
        let points: Vec<(u64, f64)> =
            thin(&run, 2).trace.iter().map(|s| (s.step, s.bytes_up)).collect();
        assert_eq!(points, [(2, 10.0), (4, 35.0)]);
        assert_eq!(thin(&run, 5).trace, run.trace);
        assert_eq!(thin(&run, 500).trace, run.trace);
    }
}
