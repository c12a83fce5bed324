//! The crates of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The root file of every library and program, relative to the repository.
pub(crate) fn roots() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("the folder of the crates");
    let mut folders: Vec<_> = crates
        .map(|entry| Path::new("crates").join(entry.expect("a readable folder").file_name()))
        .collect();
    folders.push("xtask".into());
    folders.sort();
    let roots = folders
        .iter()
        .flat_map(|folder| ["lib.rs", "main.rs"].map(|name| folder.join("src").join(name)));
    roots.filter(|path| root().join(path).exists()).collect()
}
