//! The program `gradwire` with the model and the data of this crate.

use std::process::ExitCode;

use gradwire_cli::{Addition, main_with};

fn main() -> ExitCode {
    main_with(&[Addition::Model(&spirals::MLP), Addition::Data(&spirals::POINTS)])
}
