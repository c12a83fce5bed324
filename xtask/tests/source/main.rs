//! Rules for the source of every crate that neither the compiler nor Clippy checks.

mod circles;
mod crates;
mod imports;
mod modules;
mod width;

use std::path::Path;

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}
