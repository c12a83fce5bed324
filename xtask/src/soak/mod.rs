//! `cargo xtask soak`: attacks the release binary with random trials for a given time.
//!
//! A trial is chosen by the seed and its number alone, so `--seed` and `--trial` repeat it. The
//! times of signals are drawn, too, but the state of the process at that moment differs from run to
//! run.

mod damage;
mod draw;
mod forge;
mod kills;
mod memory;
#[path = "../../../crates/cli/tests/support/processes.rs"]
#[allow(unreachable_pub, reason = "tests of the command line include it, too")]
mod processes;
mod trial;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mpi;
use draw::Catalogue;
use trial::Trial;

/// An attack: its name, its relative frequency, and a trial of it.
type Attack = (&'static str, usize, fn(&mut Trial) -> Result<(), String>);

const ATTACKS: [Attack; 5] = [
    ("runs interrupted", 30, kills::threads),
    ("jobs interrupted under mpirun", 12, kills::processes),
    ("frames damaged", 40, damage::frames),
    ("checkpoints damaged", 20, damage::checkpoints),
    ("memory", 1, memory::grows),
];

/// The options of `soak`.
#[derive(Default)]
struct Options {
    minutes: f64,
    seed: u64,
    trial: Option<u64>,
    out: Option<PathBuf>,
}

/// Soaks for the given minutes; `None` if the arguments are wrong.
pub(crate) fn run(arguments: &[String]) -> Option<ExitCode> {
    let options = options(arguments)?;
    Some(match soak(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    })
}

fn options(arguments: &[String]) -> Option<Options> {
    let [minutes, flags @ ..] = arguments else { return None };
    let minutes = minutes.parse().ok().filter(|minutes: &f64| (0.0..1e6).contains(minutes))?;
    let mut options = Options { minutes, seed: fastrand::u64(..1 << 32), ..Options::default() };
    let (flags, rest) = flags.as_chunks::<2>();
    for [flag, value] in flags {
        match flag.as_str() {
            "--seed" => options.seed = value.parse().ok()?,
            "--trial" => options.trial = Some(value.parse().ok()?),
            "--out" => options.out = Some(value.into()),
            _ => return None,
        }
    }
    rest.is_empty().then_some(options)
}

/// Runs trials and prints the table; returns whether all survived.
fn soak(options: &Options) -> Result<bool, String> {
    let mpi = mpi::prepare().inspect_err(|reason| println!("skipped: {reason}")).is_ok();
    let gradwire = build(mpi)?;
    let catalogue = Catalogue::read(&gradwire)?;
    println!("seed {}; repeat a trial with --seed {0} --trial N", options.seed);
    let (start, limit) = (Instant::now(), Duration::from_secs_f64(60.0 * options.minutes));
    let mut counts = [(0u64, 0u64); ATTACKS.len()];
    let (mut failures, mut trials) = (Vec::new(), 0);
    let numbers = options.trial.map_or(0..u64::MAX, |trial| trial..trial + 1);
    for number in numbers.take_while(|_| options.trial.is_some() || start.elapsed() < limit) {
        let mut trial = Trial::new(options.seed, number, &gradwire, &catalogue)?;
        let at = choose(&mut trial, mpi);
        let (name, _, attack) = ATTACKS[at];
        let result = attack(&mut trial);
        // A trial may fail before its first attack counts.
        counts[at].0 += trial.attacks.max(1);
        trials += 1;
        if let Err(reason) = result {
            counts[at].1 += 1;
            println!("trial {number}, {name}: FAILED: {reason}\n{}", trial.script());
            failures.push(json!({"trial": number, "attack": name, "reason": reason, "commands": trial.script()}));
        } else {
            trial.remove();
        }
    }
    print!("{}", table(&counts));
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!("{trials} trials in {minutes:.1} minutes, {} failed", failures.len());
    if let Some(folder) = &options.out {
        let rows = ATTACKS.iter().zip(counts).map(|((name, ..), (tried, failed))| {
            json!({"attack": name, "tried": tried, "survived": tried - failed, "failed": failed})
        });
        let report = json!({
            "seed": options.seed, "minutes": (minutes * 10.0).round() / 10.0, "mpi": mpi, "trials": trials,
            "command": format!("cargo xtask soak {} --seed {}", options.minutes, options.seed),
            "attacks": rows.collect::<Vec<Value>>(), "failures": failures,
        });
        write(folder, &report)?;
    }
    Ok(failures.is_empty())
}

/// Chooses the attack of a trial by its draws.
fn choose(trial: &mut Trial, mpi: bool) -> usize {
    let all: usize = ATTACKS.iter().map(|(_, weight, _)| weight).sum();
    let mut draw = trial.rng.usize(..all);
    let at = ATTACKS.iter().position(|(_, weight, _)| {
        let here = draw < *weight;
        draw = draw.wrapping_sub(*weight);
        here
    });
    // Without MPI their share goes to runs in one process.
    at.filter(|&at| mpi || !ATTACKS[at].0.contains("mpirun")).unwrap_or(0)
}

fn table(counts: &[(u64, u64)]) -> String {
    let mut table = "| attack | tried | survived | failed |\n|---|---:|---:|---:|\n".to_owned();
    for ((name, ..), (tried, failed)) in ATTACKS.iter().zip(counts) {
        table += &format!("| {name} | {tried} | {} | {failed} |\n", tried - failed);
    }
    table
}

fn write(folder: &Path, report: &Value) -> Result<(), String> {
    let file = folder.join("report.json");
    let written = std::fs::create_dir_all(folder);
    let written = written.and_then(|()| std::fs::write(&file, format!("{report:#}\n")));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// Builds the release binary; returns its path.
fn build(mpi: bool) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let features: &[&str] = if mpi { &["--features", "gradwire-cli/mpi"] } else { &[] };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "-p", "gradwire-cli"]).args(features).current_dir(root);
    if !cargo.status().is_ok_and(|status| status.success()) {
        return Err("gradwire does not build".to_owned());
    }
    // xtask itself runs from another subfolder of the same target folder, such as `debug`.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.parent().and_then(Path::parent).unwrap_or(Path::new("target"));
    Ok(target.join("release/gradwire"))
}
