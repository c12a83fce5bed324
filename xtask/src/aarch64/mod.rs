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

/// What runs in every test of a change: the codes and kernels.
const QUICK: [&str; 1] = ["test -p gradwire-bits --lib"];
/// The rest: compressors, exchanges, and the digests of the small committed runs.
const MORE: [&str; 3] = [
    "test -p gradwire --lib",
    "test -p gradwire-exchange --lib --tests",
    "test -p gradwire-testbed --test committed_runs",
];

/// Runs everything, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    check(true, &mut report);
    crate::test::sum_up(&report)
}

/// Runs the quick tests, and `all` of them if asked. Output of the quick ones is printed at their
/// end, because they run beside others.
pub(crate) fn check(all: bool, report: &mut Report) {
    let prepared =
        debian::prepare(&PACKAGES, Some("arm64"), || toolchain().is_some() && has_runtime());
    let toolchain = match prepared.map(|()| toolchain()) {
        Ok(Some(toolchain)) => toolchain,
        Ok(None) => unreachable!("it has been found"),
        Err(install) => {
            let line = format!("skipped: aarch64 under emulation ({install})");
            println!("{line}");
            report.counts.read(&line);
            return;
        }
    };
    let steps: Vec<&str> = QUICK.into_iter().chain(MORE.into_iter().filter(|_| all)).collect();
    report.step("aarch64", |counts| {
        let mut passed = true;
        for step in steps {
            let mut cargo = toolchain.cargo(step);
            let read = |line: &str| counts.read(line);
            passed &= if all { reads(&mut cargo, read) } else { reads_whole(&mut cargo, read) };
        }
        passed
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
}

/// Whether programs for aarch64 can be linked and emulated.
fn has_runtime() -> bool {
    !output_of(LINKER, &["--version"]).is_empty()
        && !output_of(EMULATOR, &["--version"]).is_empty()
        && Path::new("/lib/ld-linux-aarch64.so.1").exists()
}

/// A Rust compiler that has the library for aarch64.
struct Toolchain {
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
