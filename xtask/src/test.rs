//! `cargo xtask test`: the checks that a change must pass. Some run at the same time, because tests
//! often wait.

use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::aarch64;
use crate::counts::{reads, reads_whole};
use crate::extension;
use crate::mpi;
use crate::python::{self, Environment};
use crate::report::{Report, sum_up};

/// A step: its name, and the arguments of cargo.
type Step = (&'static str, &'static str);

/// The steps that come first.
const FIRST: [Step; 2] = [("format", "fmt --all --check"), ("build", "test --workspace --no-run")];
const TESTS: Step = ("tests", "test --workspace --no-fail-fast");
/// The checks of the code and its documentation, without tests.
const CHECKS: [Step; 4] = [
    // Fuzz targets are included, without the library that runs them, which needs a C++ compiler.
    (
        "lints",
        "clippy --workspace --all-targets --config env.CUSTOM_LIBFUZZER_PATH=\"target/none.a\" -- -D warnings",
    ),
    (
        "documentation",
        // With the crates and settings of the lints, so dependencies need not be checked again.
        "doc --workspace --no-deps --config env.CUSTOM_LIBFUZZER_PATH=\"target/none.a\" --config build.rustdocflags=[\"-Dwarnings\"]",
    ),
    ("codes without the standard library", "check -p gradwire-bits --no-default-features --lib"),
    ("compressors alone", "check -p gradwire --no-default-features --lib"),
];

/// Runs every step, even after one has failed, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    let environment = Environment::prepare();
    let mpi = mpi::prepare().map_err(|reason| report.counts.skipped.push(reason)).is_ok();
    for (name, step) in FIRST {
        report.step(name, |counts| cargo(&arguments(step, mpi), |line| counts.read(line)));
    }
    let (running, are_running) = mpsc::channel();
    let beside = thread::scope(|scope| {
        let beside = scope.spawn(move || beside_tests(&are_running, environment, mpi));
        let (name, step) = TESTS;
        report.step(name, |counts| {
            cargo(&arguments(step, mpi), |line| {
                let _ = running.send(());
                counts.read(line);
            })
        });
        drop(running);
        beside.join().expect("no step panics")
    });
    report.add(beside);
    sum_up(&report)
}

/// The steps of the Python package, with the checks at the same time: tests often wait and leave
/// processors to compilers.
fn beside_tests(are_running: &Receiver<()>, environment: Environment, mpi: bool) -> Report {
    let mut report = Report::default();
    // Cargo builds one thing at a time, and the tests must be built before it runs them.
    let _ = are_running.recv();
    let package = python::build(environment, &mut report);
    let checks = thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let mut checks = check(mpi);
            aarch64::check(&mut checks);
            checks
        });
        python::test(package, true, &mut report);
        checks.join().expect("no step panics")
    });
    report.add(checks);
    report
}

fn check(mpi: bool) -> Report {
    let mut report = Report::default();
    for (name, step) in CHECKS {
        report.step(name, |_| {
            let mut cargo = Command::new(env!("CARGO"));
            reads_whole(cargo.args(arguments(step, mpi).split(' ')), |_| ())
        });
    }
    report
}

/// Variables with which the GNU C library keeps freed memory. Tests allocate and free large tensors
/// all the time, and the kernel would clear each page again.
const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "4294967296"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];

/// Runs cargo, and `read`s each line that it prints; returns whether it succeeded.
fn cargo(arguments: &str, read: impl FnMut(&str)) -> bool {
    eprintln!("   cargo {arguments}");
    let mut cargo = Command::new(env!("CARGO"));
    reads(cargo.args(arguments.split(' ')).envs(KEEP_MEMORY), read)
}

/// Runs only the tests of the Python package, and prints a summary.
pub(crate) fn run_python() -> ExitCode {
    let mut report = Report::default();
    let package = python::build(Environment::prepare(), &mut report);
    python::test(package, false, &mut report);
    sum_up(&report)
}

/// Runs only the tests of `examples/extension`, and prints a summary.
pub(crate) fn run_extension() -> ExitCode {
    let mut report = Report::default();
    let package = python::build(Environment::prepare(), &mut report);
    extension::test(package.as_ref(), &mut report);
    sum_up(&report)
}

/// Runs one command of tests, and prints a summary.
pub(crate) fn run_only(name: &'static str, command: &mut Command) -> ExitCode {
    let mut report = Report::default();
    report.step(name, |counts| reads(command, |line| counts.read(line)));
    sum_up(&report)
}

/// The arguments of a step. Without MPI they exclude the crate that needs it; with MPI they enable
/// it in the command-line tool.
fn arguments(step: &str, mpi: bool) -> String {
    let more = if mpi { "--features gradwire-cli/mpi" } else { "--exclude gradwire-mpi" };
    step.replace("--workspace", &format!("--workspace {more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_mpi_its_crate_is_left_out_of_the_workspace() {
        let [(_, format), ..] = FIRST;
        let [(_, lints), ..] = CHECKS;
        let without = "clippy --workspace --exclude gradwire-mpi --all-targets";
        assert!(arguments(lints, false).starts_with(without));
        let with = "clippy --workspace --features gradwire-cli/mpi --all-targets";
        assert!(arguments(lints, true).starts_with(with));
        assert_eq!(arguments(format, false), format);
    }
}
