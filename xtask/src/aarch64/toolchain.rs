//! The compiler, linker and emulator for aarch64.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::output_of;

pub(super) const TARGET: &str = "aarch64-unknown-linux-gnu";
const EMULATOR: &str = "qemu-aarch64-static";
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Whether programs for aarch64 can be linked and emulated.
pub(super) fn has_runtime() -> bool {
    !output_of(LINKER, &["--version"]).is_empty()
        && !output_of(EMULATOR, &["--version"]).is_empty()
        && Path::new("/lib/ld-linux-aarch64.so.1").exists()
}

/// A Rust compiler that has the library for aarch64.
pub(crate) struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
}

/// The toolchain that runs this program, or Debian's.
pub(super) fn toolchain() -> Option<Toolchain> {
    let ours = Path::new(env!("CARGO")).with_file_name("rustc");
    let both = [
        Toolchain { cargo: env!("CARGO").into(), rustc: ours },
        Toolchain { cargo: "/usr/bin/cargo".into(), rustc: "/usr/bin/rustc".into() },
    ];
    both.into_iter().find(|toolchain| {
        let folder = output_of(
            &toolchain.rustc.to_string_lossy(),
            &["--print", "target-libdir", "--target", TARGET],
        );
        !folder.is_empty() && Path::new(folder.trim()).exists()
    })
}

impl Toolchain {
    /// Its cargo for aarch64. It has a folder of its own, so other builds need not wait.
    pub(super) fn cargo(&self, arguments: &str) -> Command {
        let mut cargo = Command::new(&self.cargo);
        let mut words = arguments.split(' ');
        cargo.args(words.next()).args(["--target", TARGET]).args(words);
        let variable = TARGET.to_uppercase().replace('-', "_");
        cargo
            .env_remove("RUSTUP_TOOLCHAIN")
            .env("RUSTC", &self.rustc)
            .env("CARGO_TARGET_DIR", folder())
            .env(format!("CARGO_TARGET_{variable}_LINKER"), LINKER)
            .env(format!("CARGO_TARGET_{variable}_RUNNER"), EMULATOR);
        cargo
    }
}

pub(super) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("aarch64")
}
