//! Everything a person runs on this repository: `cargo xtask <task>`.

mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  test     format, lints, every test and every documented example; ends with counts
  golden   write the golden files that do not exist yet (those that exist are never changed)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("test"), None) => test::run(),
        (Some("golden"), None) => golden(),
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs the golden-file test with leave to write what is missing.
fn golden() -> ExitCode {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["test", "-p", "gradwire", "--test", "golden"])
        .env("GRADWIRE_WRITE_GOLDEN", "1")
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
