//! Debian packages that tests need. Continuous integration installs missing ones.

use std::process::{Command, Stdio};

/// Makes tools available: checks that they are here. In continuous integration, as root, it
/// installs the packages, which are arguments of `apt-get install`. `architecture` names a second
/// architecture whose packages are among them.
///
/// # Errors
/// The command that installs them.
pub(crate) fn prepare(
    packages: &[&str],
    architecture: Option<&str>,
    are_here: fn() -> bool,
) -> Result<(), String> {
    if are_here() {
        return Ok(());
    }
    let install = format!("apt-get install {}", packages.join(" "));
    if std::env::var_os("CI").is_some() && output_of("id", &["-u"]).trim() == "0" {
        eprintln!("== missing packages: {install}");
        let added = architecture.is_none_or(|name| succeeds("dpkg", &["--add-architecture", name]));
        let installed = added
            && succeeds("apt-get", &["update", "-q"])
            && succeeds("apt-get", &[&["install", "-y", "-q"], packages].concat());
        if installed && are_here() {
            return Ok(());
        }
    }
    let add =
        architecture.map(|name| format!("dpkg --add-architecture {name} && apt-get update && "));
    Err(add.unwrap_or_default() + &install)
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The output of a program; empty if it fails or is missing.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).into_owned())
}
