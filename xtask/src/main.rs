//! The tasks of this repository: `cargo xtask <task>`.

mod fuzz;
mod mpi;
mod python;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  test     check format and lints, run every test (also under MPI, if it is installed) and every documented
           example, in Rust and in Python; ends with counts
  python   run only the tests of the Python package
  docs     generate docs/compressors.md from the registry and the measured rows
  fuzz     fuzz each decoder separately for the given number of seconds: cargo xtask fuzz 600 [NAME...]
  corpus   add seeds for the fuzz targets from the golden files
  golden   write missing golden files (existing ones are never changed)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    match (task.as_str(), arguments.as_slice()) {
        ("test", []) => test::run(),
        ("python", []) => test::run_python(),
        ("docs", []) => write_by("docs", "GRADWIRE_WRITE_DOCS"),
        ("fuzz", [seconds, names @ ..]) => match seconds.parse() {
            Ok(seconds @ 1..) => fuzz::run(seconds, names),
            _ => usage(),
        },
        ("corpus", []) => write_by("corpus", "GRADWIRE_WRITE_CORPUS"),
        ("golden", []) => write_by("golden", "GRADWIRE_WRITE_GOLDEN"),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

/// Runs a test of the core crate with the environment variable that lets it write the files it checks.
fn write_by(test: &str, variable: &str) -> ExitCode {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["test", "-p", "gradwire", "--test", test])
        .env(variable, "1")
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
