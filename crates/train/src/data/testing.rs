//! Where tests find real data.

use std::env;
use std::path::{Path, PathBuf};

use super::ROOT_VARIABLE;

/// The folder of data set `name`: under `$GRADWIRE_DATA`, else where the development machine keeps
/// it. Without one, prints `skipped: …` and gives nothing; the test then returns.
pub(crate) fn real_data(name: &str) -> Option<PathBuf> {
    let root = env::var_os(ROOT_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let dir = root.join(name);
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("skipped: no data set '{name}' at '{}'; set {ROOT_VARIABLE}", dir.display());
    None
}
