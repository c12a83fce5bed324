//! Everything a person runs on this repository: `cargo xtask <task>`.

mod fuzz;
mod mpi;
mod python;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  test     format, lints, every test (also under MPI, where it is at hand) and every documented example,
           in Rust and in Python; ends with counts
  python   the tests of the Python package alone
  generate everything that is made from the registry, after a compressor was added: golden, corpus and docs
  golden   write the golden files that do not exist yet (those that exist are never changed)
  corpus   add seeds for the fuzz targets from the golden files
  docs     write docs/compressors.md anew from the registry and the measured rows
  fuzz     the fuzz targets, each decoder apart, for so many seconds each: cargo xtask fuzz 600 [NAME...]
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    match (task.as_str(), arguments.as_slice()) {
        ("test", []) => test::run(),
        ("python", []) => test::run_python(),
        ("generate", []) => generate(&["golden", "corpus", "docs"]),
        (part @ ("golden" | "corpus" | "docs"), []) => generate(&[part]),
        ("fuzz", [seconds, names @ ..]) => match seconds.parse() {
            Ok(seconds @ 1..) => fuzz::run(seconds, names),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

/// Runs tests of the core crate, one after the other, with leave to write the files that they check.
fn generate(tests: &[&str]) -> ExitCode {
    for test in tests {
        let status = std::process::Command::new(env!("CARGO"))
            .args(["test", "-p", "gradwire", "--test", test])
            .env(format!("GRADWIRE_WRITE_{}", test.to_uppercase()), "1")
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: cargo does not start: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
