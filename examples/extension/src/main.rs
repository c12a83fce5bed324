//! The program `gradwire` with the compressors of this crate.

use std::process::ExitCode;

use gradwire_cli::{Addition, main_with};

fn main() -> ExitCode {
    main_with(&[Addition::Compressor(&acme::ENTRY)])
}
