//! `cargo xtask wheels`: builds the wheels and the source distribution of the Python package,
//! installs them in new environments, and tests them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::python::runs;
use crate::toolchain::Toolchain;

/// The build tool, with zig, which links against the old glibc that manylinux2014 requires.
const TOOLS: &str = "maturin[zig]==1.16.0";
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
/// The minor versions of the oldest Python that the package supports and of the last one to look
/// for.
const MINORS: [u32; 2] = [9, 19];
const MANIFEST: &str = "crates/python/Cargo.toml";

/// Builds and tests everything. Steps that are impossible on this machine are skipped, with the
/// remedy.
pub(crate) fn run() -> ExitCode {
    match all() {
        Ok(skipped) => {
            skipped.iter().for_each(|reason| println!("skipped: {reason}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the skipped steps.
///
/// # Errors
/// The step that failed.
fn all() -> Result<Vec<String>, String> {
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()));
    // Zig's linker starts in other folders, so its path must be absolute.
    let target = std::path::absolute(&target).map_err(|error| error.to_string())?;
    let (out, environments) = (target.join("wheels"), target.join("wheels-python"));
    for folder in [&out, &environments] {
        let _ = fs::remove_dir_all(folder);
    }
    let tools = environment(Path::new("python3"), &environments.join("tools"), TOOLS)?;
    let mut skipped = Vec::new();
    for target in TARGETS {
        match Toolchain::with_library(target) {
            Some(toolchain) => build(&tools, &toolchain, target, &out)?,
            None => skipped.push(format!("the wheel for {target}: rustup target add {target}")),
        }
    }
    runs_maturin(&mut maturin(&tools, "sdist", &out)?)?;
    let pythons = interpreters(&mut skipped);
    for (at, python) in pythons.iter().enumerate() {
        let here = format!("_{}.whl", std::env::consts::ARCH);
        try_out(python, &built(&out, &here)?, &environments.join(format!("wheel-{at}")))?;
    }
    if let Some(newest) = pythons.last() {
        try_out(newest, &built(&out, ".tar.gz")?, &environments.join("sdist"))?;
    }
    println!("wheels and source distribution: {}", out.display());
    Ok(skipped)
}

/// Builds only the wheel for a target, with tools in a folder. Returns the tools' Python, and the
/// wheel.
///
/// # Errors
/// The step that failed.
pub(crate) fn build_one(target: &str, folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    let toolchain = Toolchain::with_library(target).ok_or("no Rust toolchain has its library")?;
    let tools = environment(Path::new("python3"), &folder.join("tools"), TOOLS)?;
    build(&tools, &toolchain, target, &folder.join("wheels"))?;
    Ok((tools, built(&folder.join("wheels"), ".whl")?))
}

fn build(tools: &Path, toolchain: &Toolchain, target: &str, out: &Path) -> Result<(), String> {
    let options = format!("build --release --zig --compatibility manylinux2014 --target {target}");
    let mut command = maturin(tools, &options, out)?;
    command.env_remove("RUSTUP_TOOLCHAIN");
    runs_maturin(command.env("CARGO", &toolchain.cargo).env("RUSTC", &toolchain.rustc))
}

fn runs_maturin(command: &mut Command) -> Result<(), String> {
    if runs(command) { Ok(()) } else { Err(format!("{command:?}")) }
}

fn maturin(tools: &Path, options: &str, out: &Path) -> Result<Command, String> {
    let mut command = Command::new(tools);
    // Maturin finds zig in the environment on the path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = tools.parent().unwrap_or(Path::new("")).to_owned();
    let folders = std::iter::once(first).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).map_err(|error| error.to_string())?);
    command.args(["-m", "maturin"]).args(options.split(' '));
    command.args(["--manifest-path", MANIFEST, "--out"]).arg(out);
    Ok(command)
}

/// Installs a package in a new virtual environment of an interpreter, and runs the smoke test
/// there.
fn try_out(python: &Path, package: &Path, folder: &Path) -> Result<(), String> {
    let inside = environment(python, folder, &format!("{}[numpy]", package.display()))?;
    let works = runs(Command::new(inside).arg("crates/python/tests/smoke.py"));
    if works {
        Ok(())
    } else {
        Err(format!("{} fails with {}", package.display(), python.display()))
    }
}

/// A new virtual environment with a package; returns its interpreter.
fn environment(python: &Path, folder: &Path, package: &str) -> Result<PathBuf, String> {
    if !runs(Command::new(python).args(["-m", "venv"]).arg(folder)) {
        return Err(format!("{} has no venv; install it (Debian: python3-venv)", python.display()));
    }
    let inside = folder.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
    if runs(Command::new(&inside).args(install)) {
        Ok(inside)
    } else {
        Err(format!("pip install {package}"))
    }
}

/// The interpreters on the path of the oldest supported version and of the newest.
fn interpreters(skipped: &mut Vec<String>) -> Vec<PathBuf> {
    let [oldest, last] = MINORS;
    let name = |minor: u32| PathBuf::from(format!("python3.{minor}"));
    let starts = |python: &PathBuf| {
        Command::new(python).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found: Vec<PathBuf> = (oldest..=last).map(name).filter(starts).collect();
    if found.first() != Some(&name(oldest)) {
        skipped.push(format!(
            "Python 3.{oldest} is not installed; tested with the oldest Python found"
        ));
    }
    match found.as_slice() {
        [] => vec![PathBuf::from("python3")],
        [one] => vec![one.clone()],
        [first, .., last] => vec![first.clone(), last.clone()],
    }
}

/// The file in a folder whose name has this ending.
fn built(folder: &Path, end: &str) -> Result<PathBuf, String> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let fits = |path: &PathBuf| path.to_string_lossy().ends_with(end);
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths.find(fits).ok_or_else(|| format!("no *{end} in {}", folder.display()))
}
