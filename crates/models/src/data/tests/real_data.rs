//! Finds real data for tests.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::data::ROOT_VARIABLE;

/// The folder of data set `name` under `$GRADWIRE_DATA`. Without one, prints `skipped: …` and
/// returns `None`; the test then returns.
pub(crate) fn real_data(name: &str) -> Option<PathBuf> {
    let dir = env::var_os(ROOT_VARIABLE).map(|root| Path::new(&root).join(name));
    let found = dir.filter(|dir| dir.is_dir());
    if found.is_none() {
        // Bypasses the test runner, which swallows the `println!` output of passing tests.
        let remedy = "set it to where one is";
        let _ =
            writeln!(io::stdout(), "skipped: no data set '{name}' under {ROOT_VARIABLE}; {remedy}");
    }
    found
}
