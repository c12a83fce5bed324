//! `cargo xtask fuzz`: fuzzes every decoder separately, and the kernels, for a given time.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;

use crate::nightly;

/// The targets beside the messages of compressors.
const TARGETS: [&str; 3] = ["frames", "states", "kernels"];

/// One fuzzing run: of frames, of state files, of the kernels, or of the messages of one compressor.
#[derive(Clone)]
struct Job {
    target: &'static str,
    name: String,
}

/// Fuzzes the named decoders, or all, for `seconds` each, one on each core at a time.
pub(crate) fn run(seconds: u64, names: &[String]) -> ExitCode {
    let failed = fuzz(seconds, names).unwrap_or_else(|message| {
        eprintln!("error: {message}");
        1
    });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fuzzes the named decoders; returns the number of failures.
fn fuzz(seconds: u64, names: &[String]) -> Result<usize, String> {
    let jobs = chosen(all()?, names)?;
    let sanitizer = if nightly::is_here() {
        "with AddressSanitizer"
    } else {
        "with no sanitizer: there is no nightly toolchain"
    };
    println!("{sanitizer}");
    for target in TARGETS.into_iter().chain(["messages"]) {
        let built = cargo_fuzz("build", target).status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("the fuzz targets do not build; run cargo install cargo-fuzz and install a C++ compiler".to_owned());
        }
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (jobs, failed) = (Mutex::new(jobs.into_iter()), Mutex::new(0));
    let work = || {
        while let Some(job) = { jobs.lock().expect("no worker panics").next() } {
            let result = job.run(seconds);
            println!("{:17} {}", job.name, result.as_ref().unwrap_or_else(|found| found));
            *failed.lock().expect("no worker panics") += usize::from(result.is_err());
        }
    };
    thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    Ok(failed.into_inner().expect("no worker panics"))
}

/// All jobs: frames, states, kernels, and the messages of each compressor with seeds in the corpus.
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
                "unknown target '{name}'; use frames, states, kernels or the id of a compressor"
            )
        })
    };
    names.iter().map(of_name).collect()
}

impl Job {
    /// Runs the job; returns the number of inputs as text.
    ///
    /// # Errors
    /// The path of the log if an input failed.
    fn run(&self, seconds: u64) -> Result<String, String> {
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
        let inputs =
            text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        match inputs {
            Some(inputs) if status.success() => {
                Ok(format!("{} inputs, nothing found", inputs.trim()))
            }
            _ => Err(format!("FAILED: {}", log.display())),
        }
    }

    fn seeds(&self) -> PathBuf {
        let corpus = home().join("corpus").join(self.target);
        if self.target == "messages" { corpus.join(&self.name) } else { corpus }
    }
}

/// A command of cargo-fuzz. The stable compiler has no sanitizers; without one, the faults that are found are panics.
fn cargo_fuzz(verb: &str, target: &str) -> Command {
    let (mut command, sanitizer) = if nightly::is_here() {
        (nightly::cargo(), "address")
    } else {
        (Command::new(env!("CARGO")), "none")
    };
    command.args(["fuzz", verb, "--sanitizer", sanitizer, target]).current_dir(home());
    // Reports name the lines.
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "1");
    command
}

fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}
