//! Everything a person runs on this repository: `cargo xtask <task>`.

mod mpi;
mod python;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  test     format, lints, every test (also under MPI, where it is at hand) and every documented example,
           in Rust and in Python; ends with counts
  python   the tests of the Python package alone
  docs     write docs/compressors.md anew from the registry and the measured rows
  corpus   add seeds for the fuzz targets from the golden files
  golden   write the golden files that do not exist yet (those that exist are never changed)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("test"), None) => test::run(),
        (Some("python"), None) => test::run_python(),
        (Some("docs"), None) => write_by("docs", "GRADWIRE_WRITE_DOCS"),
        (Some("corpus"), None) => write_by("corpus", "GRADWIRE_WRITE_CORPUS"),
        (Some("golden"), None) => write_by("golden", "GRADWIRE_WRITE_GOLDEN"),
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs a test of the core crate with leave to write the files it checks.
fn write_by(test: &str, leave: &str) -> ExitCode {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["test", "-p", "gradwire", "--test", test])
        .env(leave, "1")
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo does not start: {error}");
            ExitCode::FAILURE
        }
    }
}
