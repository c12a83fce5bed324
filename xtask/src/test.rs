//! `cargo xtask test`: the checks that a change must pass, cheapest first.

use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::counts::{Counts, reads};
use crate::mpi;
use crate::python::{self, Environment};

/// The steps: the name of each, and the arguments of cargo.
const STEPS: [(&str, &str); 4] = [
    ("format", "fmt --all --check"),
    ("lints", "clippy --workspace --all-targets -- -D warnings"),
    ("tests", "test --workspace --no-fail-fast"),
    ("codes without the standard library", "test -p gradwire-bits --no-default-features --lib"),
];

/// Runs every step, even after one has failed, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut counts = Counts::default();
    let mut broken = Vec::new();
    let environment = Environment::prepare();
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
    run_package(environment, &mut counts, &mut broken);
    sum_up(&counts, &broken)
}

/// Runs only the tests of the Python package, and prints a summary.
pub(crate) fn run_python() -> ExitCode {
    let (mut counts, mut broken) = (Counts::default(), Vec::new());
    run_package(Environment::prepare(), &mut counts, &mut broken);
    sum_up(&counts, &broken)
}

/// Runs one command of tests, and prints a summary.
pub(crate) fn run_only(name: &'static str, command: &mut Command) -> ExitCode {
    let mut counts = Counts::default();
    let passed = reads(command, |line| counts.read(line));
    let broken = [name];
    sum_up(&counts, if passed { &[] } else { &broken })
}

fn run_package(environment: Environment, counts: &mut Counts, broken: &mut Vec<&'static str>) {
    let start = Instant::now();
    eprintln!("== Python package");
    if !python::test(environment, counts) {
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
}
