//! `cargo xtask frameworks`: trains with DeepSpeed and Megatron-Core through the process group.
//!
//! They are not part of `cargo xtask test`: installing them takes minutes, and other frameworks
//! behave differently if they find them. So they have an environment of their own, which sees the
//! packages of the tests' environment, too.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::counts::reads;
use crate::python::{self, Environment, Package, folder_of, runs};
use crate::report::{Report, sum_up};

const TESTS: &str = "crates/python/tests/large_frameworks.py";
/// The arguments of pip, for one package after the other: DeepSpeed's build needs PyTorch, and
/// Megatron-Core asks for packages that only GPUs need.
const INSTALLS: [&str; 3] =
    ["wheel==0.47.0", "--no-build-isolation deepspeed==0.19.8", "--no-deps megatron-core==0.16.1"];

/// Installs what is missing, runs the tests, and prints a summary.
pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    if let Some(package) = python::build(Environment::prepare(), &mut report)
        && report.step("frameworks", |_| installed(&package))
    {
        report.step("tests of frameworks", |counts| {
            let mut tests = python(&package);
            tests.args(["-m", "pytest", "-rfEs", "--color=no", "--durations=0", TESTS]);
            reads(&mut tests, |line| counts.read_pytest(line))
        });
    }
    sum_up(&report)
}

fn folder() -> PathBuf {
    folder_of("python-frameworks")
}

/// The interpreter that has the frameworks, and the packages of the tests.
fn python(package: &Package) -> Command {
    let mut python = Command::new(folder().join("venv/bin/python"));
    python.env("PYTHONPATH", package.site()).env("DS_ACCELERATOR", "cpu").env("DS_BUILD_OPS", "0");
    python
}

/// Creates the environment, unless one of an earlier run fits; returns whether there is one.
fn installed(package: &Package) -> bool {
    // The environment sees the packages of the tests' one by its path.
    let (folder, seen) = (folder(), package.site());
    let wanted = format!("{}\n{}", INSTALLS.join("\n"), seen.display());
    let stamp = folder.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return true;
    }
    let _ = fs::remove_dir_all(&folder);
    let created = runs(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")));
    let installs = |arguments: &&str| {
        let pip = "-m pip install --quiet --disable-pip-version-check --no-cache-dir";
        runs(python(package).args(pip.split(' ')).args(arguments.split(' ')))
    };
    created && INSTALLS.iter().all(installs) && fs::write(stamp, wanted).is_ok()
}
