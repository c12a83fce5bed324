//! Counts of passed, failed and skipped tests from the output of test runners.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// The counts of all test runs, the names of failed tests, and the reasons for skipped ones.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    pub(crate) failures: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

impl Counts {
    /// Adds the counts of other tests.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
    }

    /// Reads one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(rest) = line.trim().strip_prefix("test result: ") {
            self.passed += count_before(rest, " passed");
            self.failed += count_before(rest, " failed");
            self.ignored += count_before(rest, " ignored");
        }
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_owned());
        }
        // With one thread the runner has already printed the name of the test on this line.
        if let Some((before, reason)) = line.split_once("skipped: ")
            && (before.is_empty() || before.starts_with("test "))
        {
            self.skipped.push(reason.to_owned());
        }
    }

    /// Reads one line of pytest's output.
    pub(crate) fn read_pytest(&mut self, line: &str) {
        let bare = line.trim_matches(['=', ' ']);
        if bare.contains(" in ") && (bare.contains(" passed") || bare.contains(" failed")) {
            self.passed += count_before(bare, " passed");
            self.failed += count_before(bare, " failed") + count_before(bare, " error");
        }
        if let Some(failure) = line.strip_prefix("FAILED ").or(line.strip_prefix("ERROR ")) {
            self.failures.push(failure.to_owned());
        }
        if let Some((_, reason)) =
            line.strip_prefix("SKIPPED").and_then(|rest| rest.split_once(": "))
        {
            self.skipped.push(reason.to_owned());
        }
    }
}

/// The number before `word` in a line such as `ok. 12 passed; 0 failed`.
fn count_before(line: &str, word: &str) -> u64 {
    line.find(word).and_then(|end| line[..end].rsplit([' ', ';']).next()?.parse().ok()).unwrap_or(0)
}

/// Runs a command, and prints and `read`s each line of its output; returns whether it succeeded.
pub(crate) fn reads(command: &mut Command, mut read: impl FnMut(&str)) -> bool {
    let mut child = match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            return false;
        }
    };
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            read(&line);
            println!("{line}");
        }
    }
    child.wait().is_ok_and(|status| status.success())
}

/// The same for a command that runs beside others: prints its output and errors after it has ended.
pub(crate) fn reads_whole(command: &mut Command, read: impl FnMut(&str)) -> bool {
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            return false;
        }
    };
    String::from_utf8_lossy(&output.stdout).lines().for_each(read);
    // Locked, so no other output comes between.
    let (mut out, mut errors) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = writeln!(out, "{command:?}")
        .and_then(|()| out.write_all(&output.stdout))
        .and_then(|()| out.flush())
        .and_then(|()| errors.write_all(&output.stderr));
    printed.is_ok() && output.status.success()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        counts
            .read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.read("test reads_mnist ... ok");
        counts.read("test tests::closes - should panic ... FAILED");
        counts.read("skipped: no MNIST under GRADWIRE_DATA");
        counts.read("test reads_ptb ... skipped: no PTB under GRADWIRE_DATA");
        assert_eq!((counts.passed, counts.failed, counts.ignored), (15, 2, 1));
        assert_eq!(counts.skipped, ["no MNIST under GRADWIRE_DATA", "no PTB under GRADWIRE_DATA"]);
        counts.read_pytest("=== 1 failed, 40 passed, 2 skipped in 36.02s (0:00:36) ===");
        counts.read_pytest("SKIPPED [1] crates/python/tests/test_examples.py:9: no flwr here");
        counts.read_pytest("FAILED crates/python/tests/test_hook.py::test_seed - assert 1 == 2");
        assert_eq!((counts.passed, counts.failed, counts.skipped.len()), (55, 3, 3));
        let failures = [
            "tests::closes - should panic",
            "crates/python/tests/test_hook.py::test_seed - assert 1 == 2",
        ];
        assert_eq!(counts.failures, failures);
    }
}
