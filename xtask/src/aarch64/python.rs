//! The Python package on aarch64: builds the wheel, installs it for Debian's Python, and runs the
//! tests that need no PyTorch under emulation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::emulation::{EMULATOR, TARGET, folder};
use crate::counts::{Counts, reads};
use crate::python::runs;
use crate::report::Report;
use crate::wheels;

/// Debian's Python and the libraries that it loads. They are unpacked in a folder, because the
/// interpreter of one architecture replaces that of another when it is installed.
const PACKAGES: [&str; 8] = [
    "python3.11-minimal:arm64",
    "libpython3.11-minimal:arm64",
    "libpython3.11-stdlib:arm64",
    "libexpat1:arm64",
    "libffi8:arm64",
    "liblzma5:arm64",
    "libssl3:arm64",
    "zlib1g:arm64",
];
const VERSION: &str = "3.11";
/// Tests that need no PyTorch.
const TESTS: [&str; 2] = ["crates/python/tests/test_delta.py", "crates/python/tests/test_stub.py"];

/// Builds the wheel and runs the tests; reports them as skipped if the tools are missing.
pub(super) fn test(report: &mut Report) {
    report.step("python", |counts| match prepare() {
        Ok(python) => [smoke(&python, counts), pytest(&python, counts)] == [true; 2],
        Err(reason) => {
            let line = format!("skipped: the Python package on aarch64: {reason}");
            println!("{line}");
            counts.read(&line);
            true
        }
    });
}

fn smoke(python: &Path, counts: &mut Counts) -> bool {
    let works = runs(Command::new(python).arg("crates/python/tests/smoke.py"));
    counts.passed += u64::from(works);
    counts.failed += u64::from(!works);
    works
}

fn pytest(python: &Path, counts: &mut Counts) -> bool {
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-rfEs", "--color=no", "-p", "no:cacheprovider"]).args(TESTS);
    reads(&mut tests, |line| counts.read_pytest(line))
}

/// Returns an interpreter that has the package.
///
/// # Errors
/// The step that failed.
fn prepare() -> Result<PathBuf, String> {
    let folder = std::path::absolute(folder().join("python")).map_err(|e| e.to_string())?;
    let _ = fs::remove_dir_all(&folder);
    let (tools, wheel) = wheels::build_one(TARGET, &folder)?;
    unpack(&folder.join("packages"), &folder.join("root"))?;
    let mut pip = Command::new(tools);
    pip.args("-m pip install --quiet --disable-pip-version-check --no-compile".split(' '))
        .args("--only-binary :all: --platform manylinux2014_aarch64".split(' '))
        .args("--platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64".split(' '))
        .args(["--python-version", VERSION, "--target"])
        .arg(folder.join("site"))
        .args(["numpy", "pytest"])
        .arg(wheel);
    if !runs(&mut pip) {
        return Err("pip cannot install numpy and pytest for aarch64".to_owned());
    }
    interpreter(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Downloads and unpacks Debian's packages.
fn unpack(downloads: &Path, root: &Path) -> Result<(), String> {
    fs::create_dir_all(downloads).map_err(|error| format!("{}: {error}", downloads.display()))?;
    let mut apt = Command::new("apt-get");
    apt.args(["download", "--quiet"]).args(PACKAGES).current_dir(downloads).stdout(Stdio::null());
    if !runs(&mut apt) {
        return Err(format!("apt-get download {}", PACKAGES.join(" ")));
    }
    for package in fs::read_dir(downloads).into_iter().flatten().flatten() {
        if !runs(Command::new("dpkg").arg("-x").arg(package.path()).arg(root)) {
            return Err(format!("dpkg -x {}", package.path().display()));
        }
    }
    Ok(())
}

/// Writes two scripts, `python` and `gradwire`, which run Debian's Python for aarch64 under QEMU.
/// Tests can start these scripts as they start native programs.
fn interpreter(folder: &Path) -> std::io::Result<PathBuf> {
    let programs = folder.join("bin");
    fs::create_dir_all(&programs)?;
    let (python, here) = (programs.join("python"), folder.display());
    let libraries =
        format!("{here}/root/usr/lib/aarch64-linux-gnu:{here}/root/lib/aarch64-linux-gnu");
    let start = format!(
        "#!/bin/sh\nexport PYTHONHOME={here}/root/usr PYTHONPATH={here}/site\nexec {EMULATOR} -0 {} -E LD_LIBRARY_PATH={libraries} \
         {here}/root/usr/bin/python{VERSION} \"$@\"\n",
        python.display()
    );
    let command = format!("#!/bin/sh\nexec {} -m gradwire \"$@\"\n", python.display());
    for (path, text) in [(&python, start), (&programs.join("gradwire"), command)] {
        fs::write(path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(python)
}
