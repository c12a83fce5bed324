//! Adds the commit of the source to the version that records of runs name.

use std::path::Path;
use std::process::Command;

/// What the result of a run depends on, relative to this crate.
const SOURCES: [&str; 7] = [
    "../bits",
    "../core",
    "../exchange",
    "../models",
    "../train",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn main() {
    // Both change with a commit; the log also where a branch is what changes.
    let heads = ["logs/HEAD", "HEAD"].map(|head| git(&["rev-parse", "--git-path", head]));
    for path in SOURCES.map(str::to_owned).into_iter().chain(heads.into_iter().flatten()) {
        // A file that does not exist would run this at every build.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let version = match commit() {
        Some(commit) => format!("{version}+{commit}"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=GRADWIRE_VERSION={version}");
}

/// The commit, with `.modified` if a source differs from it; `None` outside a clone of the
/// repository.
fn commit() -> Option<String> {
    // A package may lie in the repository of another project, which may even track it.
    let place = git(&["rev-parse", "--show-prefix"])?;
    if place != "crates/train/" || !Path::new("../../xtask").exists() {
        return None;
    }
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let unmodified = git(&[&["diff", "--quiet", "HEAD", "--"][..], &SOURCES].concat()).is_some();
    Some(if unmodified { commit } else { format!("{commit}.modified") })
}

/// The output of a Git command that succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())?;
    text.map(|text| text.trim_end().to_owned())
}
