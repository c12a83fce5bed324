//! The tasks of this repository: `cargo xtask <task>`.

mod aarch64;
mod counts;
mod debian;
mod extension;
mod frameworks;
mod fuzz;
mod hard;
mod mpi;
mod nightly;
mod python;
mod report;
mod report_check;
mod results;
mod site;
mod soak;
mod test;
mod toolchain;
mod wheels;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  test      check format and lints, run every test (also under MPI, if it is installed) and every documented
            example, in Rust and in Python; ends with counts
  python    run only the tests of the Python package
  extension run only the tests of the crates in examples, which are outside the workspace: a compressor and a model of
            their own
  frameworks
            run only the tests with DeepSpeed and Megatron-Core, which it installs in target/python-frameworks
  generate  after adding a compressor, generate everything that is made from the registry: golden, corpus and docs
  golden    write missing golden files (existing ones are never changed)
  corpus    add seeds for the fuzz targets from the golden files
  docs      generate docs/compressors.md from the registry and the measured rows
  results   repeat the committed runs with low priority, and compare them; folders below results/ select some runs. A folder
            that was checked at this commit is skipped
  runs      make the small runs of results/check and the page results/marks.md again, after an intended change of bits
  aarch64   build for aarch64, run tests there under emulation, and look for NEON instructions in every kernel; all of the
            parts kernels, compressors, exchanges, models, runs and python, or only those named
  fuzz      fuzz each decoder separately, and the kernels, for the given number of seconds: cargo xtask fuzz 600 [NAME...]
  asan      run the tests of the codes, kernels and compressors under AddressSanitizer, with a nightly toolchain
  miri      run every kernel on a few inputs under Miri (rustup component add --toolchain nightly miri rust-src)
  hard      run asan, miri and fuzz in a given number of minutes, 30 if none is given, and write the result to docs/platforms.md;
            tools that are not installed are skipped
  report-check
            look at a report, or at the given HTML files, in Chromium: widths, print, requests, names, contrast, size of text;
            pictures go to target/report-check
  site      build the documentation as a site with a search, which needs no network, in target/site/book, and check its
            links; installs mdBook in target/tools
  wheels    build the wheels and the source distribution of the Python package in target/wheels, install them in new
            environments of the oldest and the newest Python, and test them
  soak      attack the release binary for the given number of minutes with signals at random moments, damaged files and
            long runs; --seed S repeats the same trials, --trial N one of them, --out FOLDER writes a report
";

fn main() -> ExitCode {
    // It may have been started in a subfolder.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    if let Err(error) = std::env::set_current_dir(root) {
        eprintln!("error: {}: {error}", root.display());
        return ExitCode::FAILURE;
    }
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    match (task.as_str(), arguments.as_slice()) {
        ("test", []) => test::run(),
        ("python", []) => test::run_python(),
        ("extension", []) => test::run_extension(),
        ("frameworks", []) => frameworks::run(),
        ("generate", []) => generate(&["golden", "corpus", "docs"]),
        (part @ ("golden" | "corpus" | "docs"), []) => generate(&[part]),
        ("results", folders) => results::run(folders),
        ("report-check", reports) => report_check::run(reports),
        ("runs", []) => write_runs(),
        ("aarch64", parts) => aarch64::run(parts).unwrap_or_else(usage),
        ("fuzz", [seconds, names @ ..]) => match seconds.parse() {
            Ok(seconds @ 1..) => fuzz::run(seconds, names),
            _ => usage(),
        },
        ("asan", []) => test::run_only("tests under AddressSanitizer", &mut nightly::asan()),
        ("miri", []) => test::run_only("tests under Miri", &mut nightly::miri()),
        ("hard", []) => hard::run(hard::MINUTES),
        ("hard", [minutes]) => match minutes.parse() {
            Ok(minutes @ 1..) => hard::run(minutes),
            _ => usage(),
        },
        ("site", []) => site::run(),
        ("wheels", []) => wheels::run(),
        ("soak", arguments) => soak::run(arguments).unwrap_or_else(usage),
        _ => usage(),
    }
}

/// Runs the test that repeats the small runs of the results, and lets it write them.
fn write_runs() -> ExitCode {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["test", "-p", "gradwire-testbed", "--test", "committed_runs"]);
    test::run_only("small committed runs", cargo.env("GRADWIRE_WRITE_RUNS", "1"))
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

/// Runs tests of the core crate one after another, with the environment variable that lets each
/// write the files it checks.
fn generate(tests: &[&str]) -> ExitCode {
    for test in tests {
        let status = std::process::Command::new(env!("CARGO"))
            .args(["test", "-p", "gradwire", "--test", "registry", &format!("{test}::")])
            .env(format!("GRADWIRE_WRITE_{}", test.to_uppercase()), "1")
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: cannot start cargo: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
