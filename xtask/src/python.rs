//! The Python step of `cargo xtask test`: builds the wheel, installs it with the packages for its
//! tests in a virtual environment, and runs the tests.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use crate::counts::{reads, reads_whole};
use crate::report::Report;

/// The installer of the packages, which takes a third of pip's time.
const UV: &str = "uv==0.12.24";
const REQUIREMENTS: &str = "crates/python/tests/requirements.txt";

/// The virtual environment of the tests. A thread installs it: downloading and unpacking PyTorch
/// takes minutes, and other steps can run meanwhile.
pub(crate) struct Environment(JoinHandle<Result<PathBuf, String>>);

impl Environment {
    /// Starts the installation, unless the environment of an earlier run fits the requirements.
    pub(crate) fn prepare() -> Self {
        Self(thread::spawn(|| {
            let folder = folder();
            if is_current(&folder) { Ok(folder) } else { install(&folder).map(|()| folder) }
        }))
    }

    fn folder(self) -> Result<PathBuf, String> {
        self.0.join().unwrap_or_else(|_| Err("its installation panicked".to_owned()))
    }
}

fn folder() -> PathBuf {
    folder_of("python-tests")
}

/// The folder of an environment with this name.
pub(crate) fn folder_of(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join(name)
}

/// The environment with the package in it.
pub(crate) struct Package(PathBuf);

/// Builds and installs the package; `None` if that fails. Without Python or access to the packages,
/// reports the tests as skipped.
pub(crate) fn build(environment: Environment, report: &mut Report) -> Option<Package> {
    let folder = match environment.folder() {
        Ok(folder) => folder,
        Err(reason) => {
            let line = format!("skipped: the Python package: {reason}");
            println!("{line}");
            report.counts.read(&line);
            return None;
        }
    };
    report.step("Python package", |_| builds(&folder)).then_some(Package(folder))
}

/// Builds and installs the package in an environment; returns whether that succeeded.
fn builds(folder: &Path) -> bool {
    let wheels = folder.join("wheels");
    // A wheel of an older version would also be installed.
    let _ = fs::remove_dir_all(&wheels);
    // With this feature, threads also share small tensors. And the Rust tests use the same builds
    // of the crates, so most need not be compiled again.
    let build = "-m maturin build --quiet --manifest-path crates/python/Cargo.toml \
                 --features gradwire/testing --out";
    if !runs(python(folder).args(build.split(' ')).arg(&wheels)) {
        return false;
    }
    let wheel = fs::read_dir(&wheels).ok().and_then(|mut files| files.next()?.ok());
    let Some(wheel) = wheel else {
        eprintln!("error: maturin wrote no wheel to {}", wheels.display());
        return false;
    };
    let install = "-m pip install --quiet --force-reinstall --no-deps";
    runs(python(folder).args(install.split(' ')).arg(wheel.path()))
}

/// Runs the tests of the package, alone or beside other steps.
pub(crate) fn test(package: Option<Package>, beside: bool, report: &mut Report) {
    let Some(Package(folder)) = package else { return };
    let mut tests = python(&folder);
    // More than the number of cores, because most tests wait for processes they start.
    let at_once = thread::available_parallelism().map_or(1, NonZero::get) + 1;
    tests.args(["-m", "pytest", "-n"]).arg(at_once.to_string());
    tests
        .args(["--dist", "worksteal", "-rfEs", "--color=no"])
        .args(["--durations=15", "crates/python/tests"]);
    report.step("Python tests", |counts| {
        let read = |line: &str| counts.read_pytest(line);
        if beside { reads_whole(&mut tests, read) } else { reads(&mut tests, read) }
    });
}

impl Package {
    /// The interpreter that has the package.
    pub(crate) fn python(&self) -> Command {
        python(&self.0)
    }

    /// The folder of all packages of the environment.
    pub(crate) fn site(&self) -> PathBuf {
        let lib = self.0.join("venv/lib");
        let versions = fs::read_dir(&lib).ok().and_then(|mut versions| versions.next()?.ok());
        let site = versions.map_or(lib, |version| version.path().join("site-packages"));
        // Tests change their folder.
        std::path::absolute(&site).unwrap_or(site)
    }
}

/// The interpreter of an environment.
fn python(folder: &Path) -> Command {
    let mut python = Command::new(folder.join("venv/bin/python"));
    // Tests start hundreds of processes. Without bytecode each would spend seconds compiling
    // PyTorch's sources.
    python.env_remove("PYTHONDONTWRITEBYTECODE");
    python
}

/// Whether the environment was made for the current requirements.
fn is_current(folder: &Path) -> bool {
    let installed = fs::read_to_string(folder.join("requirements.txt"));
    matches!((installed, fs::read_to_string(REQUIREMENTS)), (Ok(had), Ok(wanted)) if had == wanted)
}

/// Creates a new environment.
///
/// # Errors
/// If that fails, with the reason and the remedy.
fn install(folder: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let venv = folder.join("venv");
    if !runs(Command::new("python3").args(["-m", "venv"]).arg(&venv)) {
        return Err("no python3 with venv; install one (Debian: python3-venv)".to_owned());
    }
    let python = venv.join("bin/python");
    let pip = format!("-m pip install --quiet --disable-pip-version-check {UV}");
    let mut uv = Command::new(venv.join("bin/uv"));
    // Compiles no files: tests import few of the tens of thousands, and an import compiles them. A
    // cache would double the gigabytes.
    uv.args(["pip", "install", "--quiet", "--no-cache", "-r", REQUIREMENTS, "--python"])
        .arg(&python);
    if !(runs(Command::new(&python).args(pip.split(' '))) && runs(&mut uv)) {
        // Removes gigabytes of useless unpacked files.
        let _ = fs::remove_dir_all(folder);
        return Err(format!(
            "the packages of {REQUIREMENTS} cannot be installed; see the error above. They need access to PyPI, or a mirror that UV_DEFAULT_INDEX \
             names, and 7 GB of disk"
        ));
    }
    if !imports(folder) {
        return Err(format!(
            "the packages of {REQUIREMENTS} cannot be imported; see the error above"
        ));
    }
    let stamp = fs::copy(REQUIREMENTS, folder.join("requirements.txt"));
    stamp.map(drop).map_err(|error| format!("{REQUIREMENTS}: {error}"))
}

/// Imports the modules that all test processes import. That compiles them once, instead of in each
/// process that starts at the same time. Returns whether it succeeded.
fn imports(folder: &Path) -> bool {
    let tests = Path::new(REQUIREMENTS).parent().expect("a file is in a folder");
    runs(python(folder).args(["-c", "import conftest"]).env("PYTHONPATH", tests))
}

/// Runs a command; returns whether it succeeded.
pub(crate) fn runs(command: &mut Command) -> bool {
    eprintln!("   {command:?}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            false
        }
    }
}
