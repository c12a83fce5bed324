//! `cargo xtask hard`: AddressSanitizer, Miri and the fuzz targets in a given time, for a nightly
//! run. Writes the result to `docs/platforms.md`.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::{fuzz, nightly};

/// The page with the last result, and the lines around it there.
const PAGE: &str = "docs/platforms.md";
const BEGIN: &str = "<!-- the last result of cargo xtask hard, which writes it -->\n";
const END: &str = "<!-- end of the last result -->\n";

/// The default number of minutes.
pub(crate) const MINUTES: u64 = 30;

/// A check and its findings.
struct Found {
    check: &'static str,
    text: String,
    failed: bool,
}

/// Runs the installed tools in about this many minutes, and writes the result to the page.
pub(crate) fn run(minutes: u64) -> ExitCode {
    let (start, whole) = (Instant::now(), Duration::from_secs(60 * minutes));
    let left = || whole.saturating_sub(start.elapsed());
    // Time that one check leaves goes to the next ones.
    let mut found = vec![
        tests("AddressSanitizer", nightly::why_no_asan(), &mut nightly::asan(), left() * 2 / 5),
        tests("Miri", nightly::why_no_miri(), &mut nightly::miri(), left() / 2),
    ];
    found.push(fuzzed(left()));
    for Found { check, text, .. } in &found {
        println!("{check}: {text}");
    }
    if let Err(error) = write_page(&result(&found, minutes)) {
        eprintln!("error: cannot update {PAGE}: {error}");
        return ExitCode::FAILURE;
    }
    let failed = found.iter().any(|found| found.failed);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs tests under a tool, for at most this long. `lacking` names a missing requirement of the
/// tool.
fn tests(
    check: &'static str,
    lacking: Option<&str>,
    command: &mut Command,
    most: Duration,
) -> Found {
    if let Some(reason) = lacking {
        return Found { check, text: format!("skipped: {reason}"), failed: false };
    }
    println!("== {check}");
    let mut counts = Counts::default();
    let ended = ends_within(command, most, |line| counts.read(line));
    let Counts { passed, failed, .. } = counts;
    let text = match &ended {
        Err(error) => format!("did not run: {error}"),
        Ok(None) => format!(
            "{passed} tests passed, {failed} failed in {} minutes, its share of the time; others were not reached",
            most.as_secs() / 60
        ),
        Ok(Some(true)) => format!("{passed} tests passed"),
        Ok(Some(false)) if failed == 0 => {
            format!("failed to run after {passed} passed tests; see its output")
        }
        Ok(Some(false)) => {
            format!("{failed} tests failed ({}), {passed} passed", counts.failures.join(", "))
        }
    };
    Found { check, text, failed: failed > 0 || !matches!(ended, Ok(None | Some(true))) }
}

/// Fuzzes every decoder, and the kernels, for about this long altogether.
fn fuzzed(most: Duration) -> Found {
    let check = "fuzzing";
    if !fuzz::is_installed() {
        let text = "skipped: cargo-fuzz is not installed (cargo install cargo-fuzz)".to_owned();
        return Found { check, text, failed: false };
    }
    println!("== {check}");
    match fuzz::fuzz_within(most) {
        Err(error) => Found { check, text: error, failed: true },
        Ok(done) => {
            let sanitizer = if nightly::is_here() { "AddressSanitizer" } else { "no sanitizer" };
            let fuzz::Done { targets, inputs, failed } = done;
            let text =
                format!("{targets} targets, {inputs} inputs, with {sanitizer}: {failed} failed");
            Found { check, text, failed: failed > 0 }
        }
    }
}

/// Runs a command, and prints and `read`s its output. Ends it and its child processes if it takes
/// longer. Returns whether it succeeded; `None` if it was ended.
fn ends_within(
    command: &mut Command,
    most: Duration,
    mut read: impl FnMut(&str),
) -> Result<Option<bool>, String> {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| error.to_string())?;
    let (send, lines) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map_while(|line| send.send(line).ok()).for_each(drop);
        });
    }
    let until = Instant::now() + most;
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                read(&line);
                println!("{line}");
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return Ok(None);
            }
        }
    }
    child.wait().map(|status| Some(status.success())).map_err(|error| error.to_string())
}

/// The result as a paragraph and a table.
fn result(found: &[Found], minutes: u64) -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let commit = or_unknown(said("git", &["rev-parse", "--short=8", "HEAD"]));
    let changes = said("git", &["status", "--porcelain", "--untracked-files=no"]);
    let modified =
        if changes.is_some_and(|changes| !changes.is_empty()) { ", modified" } else { "" };
    let date = or_unknown(said("date", &["-u", "+%F"]));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!(
        "Last run: {date}, commit {commit}{modified}, {minutes} minutes on {cores} cores.\n\n"
    );
    text.push_str("| check | result |\n|---|---|\n");
    for Found { check, text: found, .. } in found {
        let _ = writeln!(text, "| {check} | {} |", found.replace(['|', '\n'], " "));
    }
    text
}

/// Replaces the last result on the page.
fn write_page(result: &str) -> Result<(), String> {
    let page = fs::read_to_string(PAGE).map_err(|error| error.to_string())?;
    fs::write(PAGE, replaced(&page, result)?).map_err(|error| error.to_string())
}

fn replaced(page: &str, result: &str) -> Result<String, String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}{result}{END}{after}"))
    });
    parts.ok_or_else(|| {
        format!("it does not have the lines '{}' and '{}'", BEGIN.trim(), END.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_last_result_alone() {
        let page = format!("before\n\n{BEGIN}old\n{END}\nafter\n");
        let once = replaced(&page, "new\n").unwrap();
        assert_eq!(once, format!("before\n\n{BEGIN}new\n{END}\nafter\n"));
        assert_eq!(replaced(&once, "new\n").unwrap(), once);
        assert!(replaced("another page", "new\n").unwrap_err().contains("the last result"));
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_takes_too_long_is_ended_with_what_it_started() {
        // The child would keep the output open.
        let mut sleeps = Command::new("sh");
        sleeps.args(["-c", "sleep 600 & sleep 600"]);
        assert_eq!(ends_within(&mut sleeps, Duration::from_millis(50), |_| {}), Ok(None));
        for (program, succeeds) in [("true", true), ("false", false)] {
            let ended = ends_within(&mut Command::new(program), Duration::from_secs(60), |_| {});
            assert_eq!(ended, Ok(Some(succeeds)));
        }
    }

    #[test]
    fn what_is_not_installed_is_skipped_with_the_reason() {
        let found =
            tests("Miri", Some("there is no Miri"), &mut Command::new("false"), Duration::ZERO);
        assert_eq!((found.text.as_str(), found.failed), ("skipped: there is no Miri", false));
        let table = result(&[found], 3);
        assert!(table.contains("| Miri | skipped: there is no Miri |\n"), "{table}");
        assert!(table.contains(", 3 minutes on "), "{table}");
    }
}
