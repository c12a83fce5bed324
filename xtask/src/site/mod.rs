//! `cargo xtask site`: builds the documentation as a site that needs no network, with a search, and
//! checks its links.

mod check;
mod contents;
mod markdown;
mod pages;
mod stage;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::python::runs;

const MDBOOK: &str = "0.5.4";
const SETTINGS: &str = "docs/book.toml";

pub(crate) fn run() -> ExitCode {
    match build() {
        Ok((index, links)) => {
            println!("{}: {links} links hold", index.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the site; returns its first page, and the number of its links.
///
/// # Errors
/// The step that failed.
fn build() -> Result<(PathBuf, usize), String> {
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()));
    let folder = target.join("site");
    let mdbook = installed(&target.join("tools"))?;
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    stage::stage(Path::new("."), &folder.join("src"))?;
    let settings = folder.join("book.toml");
    fs::copy(SETTINGS, &settings).map_err(|error| format!("{SETTINGS}: {error}"))?;
    if !runs(Command::new(mdbook).arg("build").arg(&folder)) {
        return Err("mdbook build".to_owned());
    }
    let site = folder.join("book");
    Ok((site.join("index.html"), check::check(&site)?))
}

/// The program mdBook in a folder of tools, which is installed if it is not there.
///
/// # Errors
/// The command that failed.
fn installed(tools: &Path) -> Result<PathBuf, String> {
    let mdbook = tools.join("bin/mdbook");
    let version = Command::new(&mdbook).arg("--version").output();
    if version.is_ok_and(|output| output.stdout.ends_with(format!("v{MDBOOK}\n").as_bytes())) {
        return Ok(mdbook);
    }
    let install = format!(
        "install mdbook --version {MDBOOK} --no-default-features --features search --locked"
    );
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(install.split(' ')).arg("--root").arg(tools);
    if runs(&mut cargo) { Ok(mdbook) } else { Err(format!("cargo {install}")) }
}
