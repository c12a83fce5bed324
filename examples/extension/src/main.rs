//! The program `gradwire` with the compressors of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    gradwire_cli::main_with(&[&acme::ENTRY])
}
