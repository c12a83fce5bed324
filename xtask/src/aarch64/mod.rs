//! `cargo xtask aarch64`: builds for aarch64, and runs tests there under QEMU's emulation.
//!
//! The emulator shows that bits are the same as on x86-64; it says nothing about speed. That every
//! kernel is compiled to NEON instructions is read from the compiler's assembly ([`vectors`]).

mod emulation;
mod python;
mod vectors;

use std::process::ExitCode;

use crate::counts::reads;
use crate::debian;
use crate::report::{Report, sum_up};
use crate::toolchain::Toolchain;
use emulation::{TARGET, cargo, has_runtime};

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

/// The tests of the codes and kernels. Compiling them with more optimization takes longer than it
/// saves.
const TESTS: &str =
    "test -p gradwire-bits --lib --config profile.dev.package.gradwire-bits.opt-level=1";
/// Random inputs of each of their properties, a quarter of what other processors try: the emulator
/// is slow.
const CASES: &str = "64";
/// The tests of compressors, exchanges and the models' sums and tanh, and the digests of the small
/// committed runs: parts with their commands.
const MORE: [(&str, &str); 4] = [
    ("compressors", "test -p gradwire --lib --no-fail-fast"),
    ("exchanges", "test -p gradwire-exchange --lib --tests --no-fail-fast"),
    ("models", "test -p gradwire-models --lib --no-fail-fast -- matmul conv::kernels tanh::"),
    ("runs", "test -p gradwire-testbed --test committed_runs --no-fail-fast"),
];
const KERNELS: &str = "kernels";
const PYTHON: &str = "python";

/// Runs some parts, or all if none is named, and prints a summary. `None` if there is no such part.
pub(crate) fn run(parts: &[String]) -> Option<ExitCode> {
    let known = MORE.iter().map(|(part, _)| *part).chain([KERNELS, PYTHON]).collect::<Vec<_>>();
    if parts.iter().any(|part| !known.contains(&part.as_str())) {
        return None;
    }
    let wanted = |part| parts.is_empty() || parts.iter().any(|named| named == part);
    let mut report = Report::default();
    let Some(toolchain) = prepared() else { return Some(ExitCode::FAILURE) };
    if wanted(KERNELS) {
        kernels(&toolchain, &mut report);
    }
    for (part, step) in MORE.into_iter().filter(|(part, _)| wanted(part)) {
        report.step(part, |counts| reads(&mut cargo(&toolchain, step), |line| counts.read(line)));
    }
    if wanted(PYTHON) {
        python::test(&mut report);
    }
    Some(sum_up(&report))
}

/// Looks for NEON instructions in the kernels, if the tools are there: with every change, because
/// it takes a minute. Emulated tests take many.
pub(crate) fn check(report: &mut Report) {
    if let Some(toolchain) = prepared() {
        vectorised(&toolchain, report);
    }
}

/// A toolchain for aarch64. Says so if the tools are missing.
fn prepared() -> Option<Toolchain> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        // On an aarch64 processor all tests run for it anyway.
        println!("not run: tests for aarch64 under emulation, which need Linux on x86-64");
        return None;
    }
    let are_here = || has_runtime() && Toolchain::with_library(TARGET).is_some();
    if let Err(install) = debian::prepare(&PACKAGES, Some("arm64"), are_here) {
        // Not counted as skipped: continuous integration goes on without the second architecture.
        println!("not run: tests for aarch64 under emulation ({install})");
        return None;
    }
    Toolchain::with_library(TARGET)
}

/// Runs the tests of codes and kernels, and looks for NEON instructions in the kernels.
fn kernels(toolchain: &Toolchain, report: &mut Report) {
    report.step(KERNELS, |counts| {
        let mut cargo = cargo(toolchain, TESTS);
        reads(cargo.env("PROPTEST_CASES", CASES), |line| counts.read(line))
    });
    vectorised(toolchain, report);
}

/// Looks for NEON instructions in the kernels.
fn vectorised(toolchain: &Toolchain, report: &mut Report) {
    report.step("NEON", |_| match vectors::without(toolchain) {
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
