//! Runs that are interrupted at random moments and resumed end with the digest of an undisturbed
//! run.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::processes::{end, ends_within, mpirun, open_mpi, ranks_of, signal};
use super::trial::{Ended, LIMIT, Trial};

/// How long ranks wait for a lost rank, and the time after that until no rank may be left.
const DEADLINE: Duration = Duration::from_secs(3);
const LATE: Duration = Duration::from_secs(2);

/// The time until no rank may be left. Ranks wait for an absent rank as long as its local steps
/// last. A rank that waits for a waiting rank waits longer, up to 7/4 of the deadline in the sparse
/// exchange among five. A rank that is still starting begins to wait after its start, which on a
/// busy machine takes most of the time that the whole job `took`.
fn patience(run: &Reference, took: Duration) -> Duration {
    let words = run.settings.iter().flat_map(|word| word.split([':', ',', ' ']));
    let steps = words.filter_map(|word| word.strip_prefix("every=")?.parse().ok());
    took + DEADLINE * steps.max().unwrap_or(1) * 7 / 4 + LATE
}

/// A run that the command line accepts: its arguments, servers, digest and time.
struct Reference {
    settings: Vec<String>,
    servers: usize,
    digest: String,
    took: Duration,
}

/// Draws runs until one is accepted, and runs it undisturbed.
fn reference(trial: &mut Trial) -> Result<Reference, String> {
    loop {
        trial.restart()?;
        let (settings, servers) = trial.catalogue.run(&mut trial.rng);
        let start = Instant::now();
        let ended = trial.gradwire(&settings)?;
        if ended.succeeded()? {
            let digest = ended.digest.ok_or("the run printed no digest")?;
            return Ok(Reference { settings, servers, digest, took: start.elapsed() });
        }
    }
}

/// The arguments that save checkpoints.
fn saving(trial: &mut Trial) -> Vec<String> {
    let every = ["0", "1", "3", "10"][trial.rng.usize(..4)];
    ["--save", "run.state", "--save-every", every].map(str::to_owned).to_vec()
}

/// Adds `--resume` if there is a checkpoint.
fn resumed(trial: &Trial, mut arguments: Vec<String>) -> Vec<String> {
    if ["run.state", "run.state.1", "run.state.new"].iter().any(|name| trial.has(name)) {
        arguments.extend(["--resume", "run.state"].map(str::to_owned));
    }
    arguments
}

/// Resumes a run, lets it end, and compares its digest.
fn conclude(trial: &mut Trial, run: &Reference) -> Result<(), String> {
    let ended = trial.gradwire(&resumed(trial, run.settings.clone()))?;
    if !ended.succeeded()? {
        return Err(format!("it cannot be resumed: {}", ended.said.trim()));
    }
    match ended.digest {
        Some(digest) if digest == run.digest => Ok(()),
        digest => Err(format!("the digest is {digest:?} instead of {}", run.digest)),
    }
}

/// Interrupts a run whose ranks are threads.
pub(super) fn threads(trial: &mut Trial) -> Result<(), String> {
    let run = reference(trial)?;
    let save = saving(trial);
    for _ in 0..trial.rng.u8(1..=4) {
        trial.attacks += 1;
        let name = ["-TERM", "-INT", "-KILL"][trial.rng.usize(..3)];
        let moment = run.took.mul_f64(trial.rng.f64());
        let arguments = resumed(trial, [&run.settings[..], &save].concat());
        let then = format!(" & sleep {:.4}; kill {name} $!; wait", moment.as_secs_f64());
        let mut child = trial.start(&mut trial.command(&arguments), &then)?;
        thread::sleep(moment);
        // It may have ended already.
        signal(child.id(), name);
        let Ended { status, said, .. } = trial.finish(&mut child)?;
        let sent = ["signal: 2 ", "signal: 9 ", "signal: 15 "];
        match status.code() {
            Some(0) => {}
            None if sent.iter().any(|sent| status.to_string().starts_with(sent)) => {}
            Some(130) if !said.contains("run.state") || trial.has("run.state") => {}
            Some(130) => return Err("it reported a checkpoint but left none".to_owned()),
            _ => return Err(format!("after {name} it ended with {status}: {}", said.trim())),
        }
    }
    conclude(trial, &run)
}

/// Interrupts one rank or all ranks of a run whose ranks are processes.
pub(super) fn processes(trial: &mut Trial) -> Result<(), String> {
    let run = reference(trial)?;
    let at = run.settings.iter().position(|word| word == "--workers").ok_or("no workers")?;
    let workers: usize = run.settings[at + 1].parse().map_err(|_| "bad workers")?;
    let (mut settings, count) = (run.settings.clone(), workers + run.servers);
    settings.drain(at..at + 2);
    let start = Instant::now();
    let mut child = trial.start(&mut job(trial, false, count, &settings), "")?;
    let Ended { said, digest, .. } = trial.finish(&mut child)?;
    if digest.as_ref() != Some(&run.digest) {
        return Err(format!("processes have digest {digest:?}, threads {}: {said}", run.digest));
    }
    let took = start.elapsed();
    settings.extend(["--deadline".to_owned(), DEADLINE.as_secs().to_string()]);
    settings.extend(saving(trial));
    for _ in 0..trial.rng.u8(1..=2) {
        trial.attacks += 1;
        interrupt(trial, (count, &settings), took, patience(&run, took))?;
    }
    conclude(trial, &run)
}

/// A job of `count` ranks; see [`mpirun`].
fn job(trial: &Trial, go_on: bool, count: usize, arguments: &[String]) -> Command {
    let open = open_mpi().unwrap_or(true);
    mpirun((open, go_on), count, &trial.command(arguments), trial.folder())
}

/// Starts or resumes a job that takes some time, and sends signals to its ranks; no rank may be
/// left `patience` later.
fn interrupt(
    trial: &mut Trial,
    (count, settings): (usize, &[String]),
    took: Duration,
    patience: Duration,
) -> Result<(), String> {
    let name = ["-TERM", "-KILL"][trial.rng.usize(..2)];
    let (go_on, all) = (trial.rng.bool(), trial.rng.u8(..4) == 0);
    let moment = took.mul_f64(trial.rng.f64());
    let arguments = resumed(trial, settings.to_vec());
    let who = if all { "all ranks" } else { "one rank" };
    let then = format!(" & sleep {:.4}; kill {name} PID # of {who}", moment.as_secs_f64());
    let mut child = trial.start(&mut job(trial, go_on, count, &arguments), &then)?;
    thread::sleep(moment);
    let mut ranks = ranks_of(trial.folder());
    if ranks.is_empty() {
        ends_within(&mut child, LIMIT);
    }
    trial.rng.shuffle(&mut ranks);
    for (rank, _) in ranks.iter().take(if all { count } else { 1 }) {
        signal(*rank, name);
    }
    let killed = Instant::now();
    while !ranks.is_empty() && killed.elapsed() < patience {
        thread::sleep(Duration::from_millis(10));
        ranks = ranks_of(trial.folder());
    }
    for (rank, _) in &ranks {
        signal(*rank, "-KILL");
    }
    end(&mut child);
    let said = trial.finish(&mut child)?.said;
    if ranks.is_empty() && !said.contains("panicked") {
        return Ok(());
    }
    Err(format!(
        "{} ranks were still running {patience:?} after {name}, or panicked: {said}",
        ranks.len()
    ))
}
