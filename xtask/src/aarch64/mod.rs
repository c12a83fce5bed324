//! `cargo xtask aarch64`: builds for aarch64, and runs tests there under QEMU's emulation.
//!
//! The emulator shows that bits are the same as on x86-64; it says nothing about speed. That every
//! kernel is compiled to NEON instructions is read from the compiler's assembly ([`vectors`]).

mod vectors;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::counts::{reads, reads_whole};
use crate::debian::{self, output_of};
use crate::report::Report;
use crate::test::sum_up;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's Rust has the library for aarch64 in a package; with rustup it would be a target. The
/// emulator needs the architecture's own C library, not the one of the cross compiler.
const PACKAGES: [&str; 9] = [
    "--no-install-recommends",
    "rustc-web",
    "cargo-web",
    "libstd-rust-web-dev:arm64",
    "gcc-aarch64-linux-gnu",
    "libc6:arm64",
    "libc6-dev:arm64",
    "libgcc-s1:arm64",
    "qemu-user-static",
];
const EMULATOR: &str = "qemu-aarch64-static";
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// The tests that run with every change: of the codes and kernels.
const QUICK: &str = "test -p gradwire-bits --lib";
/// The tests of compressors and exchanges, and the digests of the small committed runs.
const MORE: [&str; 3] = [
    "test -p gradwire --lib",
    "test -p gradwire-exchange --lib --tests",
    "test -p gradwire-testbed --test committed_runs",
];

/// Runs everything, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    if let Some(toolchain) = check(&mut report) {
        report.step("more on aarch64", |counts| {
            let run = |step| reads(&mut toolchain.cargo(step), |line| counts.read(line));
            MORE.map(run) == [true; MORE.len()]
        });
    }
    sum_up(&report)
}

/// Runs the quick tests, and looks for NEON instructions in the kernels. Prints output at the end,
/// because other steps run at the same time. `None` if the tools are missing, which is reported.
pub(crate) fn check(report: &mut Report) -> Option<Toolchain> {
    let are_here = || has_runtime() && toolchain().is_some();
    if let Err(install) = debian::prepare(&PACKAGES, Some("arm64"), are_here) {
        let line = format!("skipped: aarch64 under emulation ({install})");
        println!("{line}");
        report.counts.read(&line);
        return None;
    }
    let toolchain = toolchain()?;
    report.step("aarch64", |counts| {
        reads_whole(&mut toolchain.cargo(QUICK), |line| counts.read(line))
    });
    report.step("NEON", |_| match vectors::without(&toolchain) {
        Ok(missing) => {
            missing.iter().for_each(|kernel| println!("no NEON loop: {kernel}"));
            missing.is_empty()
        }
        Err(error) => {
            println!("error: {error}");
            false
        }
    });
    Some(toolchain)
}

/// Whether programs for aarch64 can be linked and emulated.
fn has_runtime() -> bool {
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
fn toolchain() -> Option<Toolchain> {
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
    fn cargo(&self, arguments: &str) -> Command {
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

fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("aarch64")
}
