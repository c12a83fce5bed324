//! Runs that are stopped or killed at random moments, and go on: what was saved is never lost, and
//! the bits are those of a run never stopped.
//!
//! `GRADWIRE_KILLS=300` sets how many runs the test makes; without it, a few.

#![cfg(unix)]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gradwire::Rng;
use support::processes::{ends_within, signal};
use support::{Bench, below, kills};

/// Exchanges and what goes over them: every strategy, and all that keeps a state of its own.
const EXCHANGES: [&[&str]; 11] = [
    &["--exchange", "all-reduce", "--compressor", "randomk:ratio=0.1"],
    &["--exchange", "all-gather", "--compressor", "topk:ratio=0.05"],
    &["--exchange", "scatter-reduce", "--compressor", "terngrad"],
    &["--exchange", "sparse-all-reduce", "--compressor", "topk:ratio=0.05"],
    &["--exchange", "hierarchical:node=2", "--compressor", "topk:ratio=0.05"],
    &["--exchange", "server", "--compressor", "3lc"],
    &["--exchange", "server:servers=3", "--compressor", "3lc:s=1.5", "--optimizer", "adam"],
    &["--exchange", "all-gather", "--compressor", "topk:ratio=0.05", "--overlap", "on"],
    &["--exchange", "all-gather", "--compressor", "qsparse-local:every=4", "--send", "updates"],
    &["--exchange", "all-gather", "--compressor", "topk:ratio=0.1 until 0.5 then topk:ratio=0.02"],
    &["--exchange", "all-reduce", "--compressor", "none"],
];

/// Steps between checkpoints.
const CADENCES: [&str; 4] = ["0", "1", "3", "10"];

/// Runs interrupted where nobody asks for more.
const FEW: usize = 11;

/// How often a run is interrupted before it is left to end.
const INTERRUPTIONS: u64 = 3;

fn train(bench: &Bench, exchange: &[&str]) -> Command {
    let line =
        "train --model mlp:16 --data images --workers 3 --batch 2 --steps 120 --evaluations 3";
    let mut command = bench.command(line);
    command.args(exchange).stdin(Stdio::null());
    command
}

/// Runs a command to its end; the digest it prints, or what it says against it.
fn digest(mut command: Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let digest = printed.lines().find_map(|line| line.strip_prefix("Digest of the parameters: "));
    digest.map(str::to_owned).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The outcome of a run that is interrupted some times, with its digest.
fn interrupted(
    bench: &Bench,
    exchange: &[&str],
    every: &str,
    (took, draws): (Duration, &mut Rng),
) -> Result<String, String> {
    let resume = |command: &mut Command| {
        let there = ["run.state", "run.state.1", "run.state.new"];
        if there.iter().any(|name| bench.path(name).exists()) {
            command.args(["--resume", "run.state"]);
        }
    };
    let mut history = Vec::new();
    for _ in 0..1 + below(INTERRUPTIONS, draws) {
        let mut command = train(bench, exchange);
        command.args(["--save", "run.state", "--save-every", every]);
        resume(&mut command);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let moment = Duration::from_micros(below(took.as_micros() as u64, draws));
        std::thread::sleep(moment);
        let name = ["-TERM", "-INT", "-KILL"][below(3, draws) as usize];
        // It may have ended already.
        signal(child.id(), name);
        if !ends_within(&mut child, Duration::from_secs(60)) {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("it went on for a minute after {name}; {history:?}"));
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        history.push(format!("{name} after {moment:?}: {}", output.status));
        // Done, stopped as asked, or ended by a signal: at once, or before there was anyone to ask.
        if !matches!(output.status.code(), None | Some(0 | 130)) {
            return Err(format!("{history:?}: {said}"));
        }
        let promised = said.contains("run.state") && output.status.code() == Some(130);
        if promised && !bench.path("run.state").exists() {
            return Err(format!("{history:?}: no checkpoint was left"));
        }
    }
    let mut command = train(bench, exchange);
    resume(&mut command);
    digest(command).map_err(|error| format!("{history:?}: {error}"))
}

#[test]
fn a_run_goes_on_from_any_moment_at_which_it_was_stopped_or_killed() {
    let runs = kills(FEW);
    let mut draws = Rng::new(7, 0, 0, 0, 0);
    let mut whole: Vec<Option<(String, Duration)>> = vec![None; EXCHANGES.len()];
    let mut failures = Vec::new();
    for at in 0..runs {
        let exchange = EXCHANGES[at % EXCHANGES.len()];
        let every = CADENCES[(at + at / EXCHANGES.len()) % CADENCES.len()];
        let bench = Bench::with_images();
        let (expected, took) = whole[at % EXCHANGES.len()].get_or_insert_with(|| {
            let start = Instant::now();
            let digest = digest(train(&bench, exchange)).unwrap();
            (digest, start.elapsed())
        });
        match interrupted(&bench, exchange, every, (*took, &mut draws)) {
            Ok(digest) if digest == *expected => {}
            Ok(digest) => {
                failures.push(format!("{exchange:?} every {every}: {digest}, not {expected}"))
            }
            Err(error) => failures.push(format!("{exchange:?} every {every}: {error}")),
        }
    }
    let failed = failures.len();
    println!("{runs} runs interrupted, {} survived, {failed} failed", runs - failed);
    assert!(failures.is_empty(), "{failed} of {runs} failed:\n{}", failures.join("\n"));
}
