//! Tests under tools that need the nightly toolchain: AddressSanitizer finds out-of-bounds accesses
//! in compiled code; Miri interprets the code and finds undefined behaviour.

use std::process::{Command, Stdio};

/// The target whose sanitizer is used.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The cargo of the nightly toolchain, started through rustup's `cargo`.
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

/// The missing requirement of AddressSanitizer, if any.
pub(crate) fn why_no_asan() -> Option<&'static str> {
    (!is_here()).then_some("there is no nightly toolchain (rustup toolchain install nightly)")
}

/// The missing requirement of Miri, if any.
pub(crate) fn why_no_miri() -> Option<&'static str> {
    let mut version = cargo();
    version.args(["miri", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    let is_here = version.status().is_ok_and(|status| status.success());
    why_no_asan().or((!is_here).then_some(
        "the nightly toolchain has no Miri (rustup component add --toolchain nightly miri rust-src)",
    ))
}

/// The tests of the codes, kernels and compressors under AddressSanitizer.
pub(crate) fn asan() -> Command {
    let mut command = cargo();
    command.args(["test", "--target", TARGET, "-p", "gradwire-bits", "-p", "gradwire"]);
    // A separate folder, so other builds need not wait.
    command.args(["--lib", "--tests", "--no-fail-fast", "--target-dir", "target/asan"]);
    // A test asks for more memory than there is; that is an error, not a fault.
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
    command.env("RUSTFLAGS", "-Zsanitizer=address");
    command
}

/// Every kernel under Miri, on a few inputs, as a plain loop and as compiled for SSE2: Miri lacks
/// intrinsics of the wider sets, whose only `unsafe` code is in `fearless_simd`.
pub(crate) fn miri() -> Command {
    let mut command = cargo();
    command.args(["miri", "test", "-p", "gradwire-bits", "--lib", "--", "kernels::testing"]);
    command.env("MIRIFLAGS", "-Zmiri-strict-provenance");
    command
}
