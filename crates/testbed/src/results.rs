//! Result files: one run a line, as JSON.

use std::io::ErrorKind;
use std::path::Path;

use gradwire_train::run::{RunRecord, StepRecord};

use crate::TestbedError;
use crate::files::write_atomic;

/// Reads the runs in `path`; none where there is no such file.
pub fn read(path: &Path) -> Result<Vec<RunRecord>, TestbedError> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(TestbedError::read(path))?,
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| TestbedError::Results {
                path: path.to_owned(),
                line: at + 1,
                message: error.to_string(),
            })
        })
        .collect()
}

/// Writes all of `runs` to `path`, which then holds these and no others.
pub fn write(path: &Path, runs: &[RunRecord]) -> Result<(), TestbedError> {
    let mut text = String::new();
    for run in runs {
        let line = serde_json::to_string(run).expect("a run has no keys that are not strings");
        text.push_str(&line);
        text.push('\n');
    }
    write_atomic(path, text.as_bytes())
}

/// A copy of `run` whose trace has at most `points` entries: each is the mean over its window of
/// steps and bears the number of the window's last step, so that sums over the run are kept.
pub fn thin(run: &RunRecord, points: usize) -> RunRecord {
    let window = run.trace.len().div_ceil(points.max(1)).max(1);
    let trace = run.trace.chunks(window).map(mean).collect();
    RunRecord { trace, ..run.clone() }
}

/// The mean of some consecutive steps, under the last one's number.
fn mean(steps: &[StepRecord]) -> StepRecord {
    let over =
        |field: fn(&StepRecord) -> f64| steps.iter().map(field).sum::<f64>() / steps.len() as f64;
    StepRecord {
        step: steps.last().map_or(0, |last| last.step),
        loss: over(|s| s.loss),
        learning_rate: over(|s| s.learning_rate),
        bytes_up: over(|s| s.bytes_up),
        bytes_down: over(|s| s.bytes_down),
        compute: over(|s| s.compute),
        compress: over(|s| s.compress),
        decompress: over(|s| s.decompress),
        update: over(|s| s.update),
        wire: over(|s| s.wire),
    }
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
