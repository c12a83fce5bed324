//! `cargo xtask test`: the checks that a change must pass, cheapest first.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::{mpi, python};

/// The steps: the name of each, and the arguments of cargo.
const STEPS: [(&str, &str); 4] = [
    ("format", "fmt --all --check"),
    ("lints", "clippy --workspace --all-targets -- -D warnings"),
    ("tests", "test --workspace --no-fail-fast"),
    ("codes without the standard library", "test -p gradwire-bits --no-default-features --lib"),
];

/// The counts of all test runs, the names of failed tests, and the reasons of skipped ones.
#[derive(Default)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
}

impl Counts {
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

/// Runs every step, even after one has failed, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut counts = Counts::default();
    let mut broken = Vec::new();
    let mpi = mpi::prepare().map_err(|reason| counts.skipped.push(reason)).is_ok();
    for (name, step) in STEPS {
        let start = Instant::now();
        let arguments = arguments(step, mpi);
        eprintln!("== {name}: cargo {arguments}");
        let mut cargo = Command::new(env!("CARGO"));
        if !reads(cargo.args(arguments.split(' ')), |line| counts.read(line)) {
            broken.push(name);
        }
        eprintln!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    run_package(&mut counts, &mut broken);
    sum_up(&counts, &broken)
}

/// Runs only the tests of the Python package, and prints a summary.
pub(crate) fn run_python() -> ExitCode {
    let (mut counts, mut broken) = (Counts::default(), Vec::new());
    run_package(&mut counts, &mut broken);
    sum_up(&counts, &broken)
}

fn run_package(counts: &mut Counts, broken: &mut Vec<&'static str>) {
    let start = Instant::now();
    eprintln!("== Python package");
    if !python::test(counts) {
        broken.push("Python package");
    }
    eprintln!("== Python package: {:.0} s", start.elapsed().as_secs_f64());
}

/// Prints counts, failed tests and failed steps. In continuous integration skipped tests are a failure.
fn sum_up(counts: &Counts, broken: &[&str]) -> ExitCode {
    for failure in &counts.failures {
        println!("failed: {failure}");
    }
    for reason in &counts.skipped {
        println!("skipped: {reason}");
    }
    for step in broken {
        println!("broken: {step}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        counts.passed,
        counts.failed,
        counts.skipped.len() as u64 + counts.ignored
    );
    let incomplete = std::env::var_os("CI").is_some() && !counts.skipped.is_empty();
    if incomplete {
        println!(
            "broken: tests were skipped; set GRADWIRE_DATA to the folder with the data sets, install what the lines \
             above name, and provide a python3 with access to PyPI"
        );
    }
    if broken.is_empty() && !incomplete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The arguments of a step. Without MPI they exclude the crate that needs it; with MPI they enable it in the command line.
fn arguments(step: &str, mpi: bool) -> String {
    let more = if mpi { "--features gradwire-cli/mpi" } else { "--exclude gradwire-mpi" };
    step.replace("--workspace", &format!("--workspace {more}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_mpi_its_crate_is_left_out_of_the_workspace() {
        let [(_, format), (_, lints), ..] = STEPS;
        let without = "clippy --workspace --exclude gradwire-mpi --all-targets -- -D warnings";
        assert_eq!(arguments(lints, false), without);
        let with = "clippy --workspace --features gradwire-cli/mpi --all-targets -- -D warnings";
        assert_eq!(arguments(lints, true), with);
        assert_eq!(arguments(format, false), format);
    }

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
