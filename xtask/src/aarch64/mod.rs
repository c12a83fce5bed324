//! `cargo xtask aarch64`: builds for aarch64, and runs tests there under QEMU's emulation.
//!
//! The emulator shows that bits are the same as on x86-64; it says nothing about speed. That every
//! kernel is compiled to NEON instructions is read from the compiler's assembly ([`vectors`]).

mod toolchain;
mod vectors;

use std::process::ExitCode;

use crate::counts::{reads, reads_whole};
use crate::debian;
use crate::report::{Report, sum_up};
use toolchain::{Toolchain, has_runtime, toolchain};

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

/// The tests that run with every change: of the codes and kernels.
const QUICK: &str = "test -p gradwire-bits --lib";
/// Random inputs of each of their properties, a quarter of what other processors try: the emulator
/// is slow.
const CASES: &str = "64";
/// The tests of compressors and exchanges, and the digests of the small committed runs.
const MORE: [&str; 3] = [
    "test -p gradwire --lib",
    "test -p gradwire-exchange --lib --tests",
    "test -p gradwire-testbed --test committed_runs",
];

/// Runs everything, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    let Some(toolchain) = check(&mut report) else { return ExitCode::FAILURE };
    report.step("more on aarch64", |counts| {
        let run = |step| reads(&mut toolchain.cargo(step), |line| counts.read(line));
        MORE.map(run) == [true; MORE.len()]
    });
    sum_up(&report)
}

/// Runs the quick tests, and looks for NEON instructions in the kernels. Prints output at the end,
/// because other steps run at the same time. `None` if the tools are missing, which is reported.
pub(crate) fn check(report: &mut Report) -> Option<Toolchain> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        // On an aarch64 processor all tests run for it anyway.
        println!("not run: tests for aarch64 under emulation, which need Linux on x86-64");
        return None;
    }
    let are_here = || has_runtime() && toolchain().is_some();
    if let Err(install) = debian::prepare(&PACKAGES, Some("arm64"), are_here) {
        // Not counted as skipped: continuous integration goes on without the second architecture.
        println!("not run: tests for aarch64 under emulation ({install})");
        return None;
    }
    let toolchain = toolchain()?;
    report.step("aarch64", |counts| {
        let mut cargo = toolchain.cargo(QUICK);
        reads_whole(cargo.env("PROPTEST_CASES", CASES), |line| counts.read(line))
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
