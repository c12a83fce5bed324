//! The tests of the crates in `examples`, which are outside the workspace: one with a compressor of
//! its own, its Python module in a run of two ranks, and one with a model of candle, which also
//! trains in a loop of its own over two processes.
//!
//! They are not part of `cargo xtask test`: in another workspace cargo compiles gradwire's crates
//! again, which takes minutes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::counts::reads_whole;
use crate::python::{Package, runs};
use crate::report::Report;

const FOLDER: &str = "examples/extension";
/// The profile and the folder of builds are the workspace's, so dependencies of its crates are not
/// compiled again.
const SHARED: &str =
    "--config Cargo.toml --locked --manifest-path examples/Cargo.toml --target-dir";

/// Tests the crates and, where there is Python, the module.
pub(crate) fn test(package: Option<&Package>, report: &mut Report) {
    report.step("extension", |counts| {
        // In one command, so that all have the same features and are compiled once.
        runs(cargo("build").args("--workspace --lib --bins --tests".split(' ')))
            && reads_whole(cargo("test").arg("--workspace"), |line| counts.read(line))
            && package.is_none_or(trains)
    });
}

/// Whether two ranks train with the compressor in a Python module.
fn trains(package: &Package) -> bool {
    let module = target().join("debug/libacme_native.so");
    let place = format!("{FOLDER}/python/acme/_native.abi3.so");
    if let Err(error) = fs::copy(&module, &place) {
        eprintln!("error: {}: {error}", module.display());
        return false;
    }
    let mut train = package.python();
    train.arg(format!("{FOLDER}/python/train.py")).env("PYTHONPATH", format!("{FOLDER}/python"));
    reads_whole(&mut train, |_| ())
}

fn cargo(verb: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg(verb).args(SHARED.split(' ')).arg(target());
    cargo
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
