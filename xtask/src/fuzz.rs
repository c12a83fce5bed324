//! `cargo xtask fuzz`: fuzzes every decoder separately, and the kernels, for a given time.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::nightly;

/// The targets other than the messages of compressors.
const TARGETS: [&str; 4] = ["frames", "states", "deltas", "kernels"];

/// One fuzzing run: of frames, of state files, of deltas, of the kernels, or of the messages of one
/// compressor.
#[derive(Clone)]
struct Job {
    target: &'static str,
    name: String,
}

/// The outcome of a run of all targets.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The number of targets; each message decoder counts as one.
    pub(crate) targets: usize,
    /// Tried inputs that did not fail.
    pub(crate) inputs: u64,
    /// Targets that failed.
    pub(crate) failed: usize,
}

/// Fuzzes the named decoders, or all, for `seconds` each, one on each core at a time.
pub(crate) fn run(seconds: u64, names: &[String]) -> ExitCode {
    let done = all().and_then(|all| {
        build()?;
        Ok(fuzz(seconds, chosen(all, names)?))
    });
    match done {
        Ok(done) if done.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Whether cargo-fuzz is installed.
pub(crate) fn is_installed() -> bool {
    let mut version = Command::new(env!("CARGO"));
    version.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Fuzzes all targets for about this long, including the build, but each for at least a second.
pub(crate) fn fuzz_within(most: Duration) -> Result<Done, String> {
    let (start, jobs) = (Instant::now(), all()?);
    build()?;
    let left = most.saturating_sub(start.elapsed()).as_secs();
    let seconds = (left * cores() as u64 / jobs.len() as u64).max(1);
    Ok(fuzz(seconds, jobs))
}

/// Builds all targets.
fn build() -> Result<(), String> {
    let sanitizer = if nightly::is_here() {
        "with AddressSanitizer"
    } else {
        "without a sanitizer, because there is no nightly toolchain"
    };
    println!("{sanitizer}");
    for target in TARGETS.into_iter().chain(["messages"]) {
        let built = cargo_fuzz("build", target).status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("the fuzz targets do not build; run cargo install cargo-fuzz and install a C++ compiler".to_owned());
        }
    }
    Ok(())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs jobs for `seconds` each.
fn fuzz(seconds: u64, jobs: Vec<Job>) -> Done {
    let (jobs, done) = (Mutex::new(jobs.into_iter()), Mutex::new(Done::default()));
    let work = || {
        while let Some(job) = { jobs.lock().expect("no worker panics").next() } {
            let result = job.run(seconds);
            let mut done = done.lock().expect("no worker panics");
            done.targets += 1;
            match result {
                Ok(inputs) => {
                    println!("{:17} {inputs} inputs, nothing found", job.name);
                    done.inputs += inputs;
                }
                Err(found) => {
                    println!("{:17} {found}", job.name);
                    done.failed += 1;
                }
            }
        }
    };
    thread::scope(|scope| (0..cores()).for_each(|_| drop(scope.spawn(work))));
    done.into_inner().expect("no worker panics")
}

/// All jobs: frames, states, deltas, kernels, and the messages of each compressor with seeds in the
/// corpus.
fn all() -> Result<Vec<Job>, String> {
    let folder = home().join("corpus/messages");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut ids: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    ids.sort();
    let whole = TARGETS.map(|target| Job { target, name: target.to_owned() });
    let messages = ids.into_iter().map(|name| Job { target: "messages", name });
    Ok(whole.into_iter().chain(messages).collect())
}

fn chosen(all: Vec<Job>, names: &[String]) -> Result<Vec<Job>, String> {
    if names.is_empty() {
        return Ok(all);
    }
    let of_name = |name: &String| {
        let job = all.iter().find(|job| job.name == *name);
        job.cloned().ok_or_else(|| {
            format!(
                "unknown target '{name}'; use frames, states, deltas, kernels or the id of a compressor"
            )
        })
    };
    names.iter().map(of_name).collect()
}

impl Job {
    /// Runs the job; returns the number of inputs.
    ///
    /// # Errors
    /// If an input failed, with the path of the log.
    fn run(&self, seconds: u64) -> Result<u64, String> {
        let found = home().join("../target/found").join(&self.name);
        let log = found.with_extension("log");
        let failed = |error: std::io::Error| format!("{}: {error}", found.display());
        fs::create_dir_all(&found).map_err(failed)?;
        fs::create_dir_all(self.seeds()).map_err(failed)?;
        let status = cargo_fuzz("run", self.target)
            .args([&found, &self.seeds()])
            .arg("--")
            .args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()])
            .env("GRADWIRE_FUZZ", &self.name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(failed)?)
            .status()
            .map_err(failed)?;
        let text = fs::read(&log).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let inputs = text.lines().find_map(|line| {
            line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok()
        });
        match inputs {
            Some(inputs) if status.success() => Ok(inputs),
            _ => Err(format!("FAILED: {}", log.display())),
        }
    }

    fn seeds(&self) -> PathBuf {
        let corpus = home().join("corpus").join(self.target);
        if self.target == "messages" { corpus.join(&self.name) } else { corpus }
    }
}

/// A command of cargo-fuzz. The stable compiler has no sanitizers, so only panics are found.
fn cargo_fuzz(verb: &str, target: &str) -> Command {
    let (mut command, sanitizer) = if nightly::is_here() {
        (nightly::cargo(), "address")
    } else {
        (Command::new(env!("CARGO")), "none")
    };
    command.args(["fuzz", verb, "--sanitizer", sanitizer, target]).current_dir(home());
    // Reports then name the lines.
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "1");
    command
}

fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}
