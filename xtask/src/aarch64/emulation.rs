//! The linker and the emulator for aarch64.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::output_of;
use crate::toolchain::Toolchain;

pub(super) const TARGET: &str = "aarch64-unknown-linux-gnu";
pub(super) const EMULATOR: &str = "qemu-aarch64-static";
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Whether programs for aarch64 can be linked and emulated.
pub(super) fn has_runtime() -> bool {
    !output_of(LINKER, &["--version"]).is_empty()
        && !output_of(EMULATOR, &["--version"]).is_empty()
        && Path::new("/lib/ld-linux-aarch64.so.1").exists()
}

/// A toolchain's cargo for aarch64. It has a folder of its own, so other builds need not wait.
pub(super) fn cargo(toolchain: &Toolchain, arguments: &str) -> Command {
    let mut cargo = Command::new(&toolchain.cargo);
    let mut words = arguments.split(' ');
    cargo.args(words.next()).args(["--target", TARGET]).args(words);
    let variable = TARGET.to_uppercase().replace('-', "_");
    cargo
        .env_remove("RUSTUP_TOOLCHAIN")
        .env("RUSTC", &toolchain.rustc)
        .env("CARGO_TARGET_DIR", folder())
        .env(format!("CARGO_TARGET_{variable}_LINKER"), LINKER)
        .env(format!("CARGO_TARGET_{variable}_RUNNER"), EMULATOR);
    cargo
}

pub(super) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("aarch64")
}
