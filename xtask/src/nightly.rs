//! The nightly toolchain, which has sanitizers and Miri.

use std::process::{Command, Stdio};

/// The cargo of the nightly toolchain, which rustup's `cargo` starts.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly");
    command
}

/// Whether a nightly toolchain is installed.
pub(crate) fn is_here() -> bool {
    let mut version = cargo();
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
