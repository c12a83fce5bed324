//! Checks whether MPI is installed, and installs it in continuous integration.

use std::process::{Command, Stdio};

/// The Debian packages.
const PACKAGES: [&str; 3] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev"];

/// Checks that MPI is installed. In continuous integration, as root, it installs a missing MPI.
///
/// # Errors
/// The reason and the remedy if there is no MPI.
pub(crate) fn prepare() -> Result<(), String> {
    if is_here() {
        return Ok(());
    }
    let install = format!("apt-get install {}", PACKAGES.join(" "));
    if std::env::var_os("CI").is_some() && output_of("id", &["-u"]).trim() == "0" {
        eprintln!("== MPI is missing: {install}");
        let apt = |arguments: &[&str]| {
            let status = Command::new("apt-get")
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        };
        let installed =
            apt(&["update", "-q"]) && apt(&[&["install", "-y", "-q"], &PACKAGES[..]].concat());
        if installed && is_here() {
            return Ok(());
        }
    }
    Err(format!("tests with MPI need MPI and libclang ({install})"))
}

/// Whether MPI's compiler and launcher are installed, and libclang, which parses its header.
fn is_here() -> bool {
    let clang = std::env::var_os("LIBCLANG_PATH").is_some()
        || output_of("ldconfig", &["-p"]).contains("libclang");
    clang
        && !output_of("mpicc", &["--version"]).is_empty()
        && !output_of("mpirun", &["--version"]).is_empty()
}

/// The output of a program; empty if it fails or is missing.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).into_owned())
}
