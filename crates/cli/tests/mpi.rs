//! Training with ranks that are the processes of an MPI job. Without `mpirun` the tests say that
//! they are skipped.
//!
//! `GRADWIRE_KILLS=100` sets how many runs the test of ranks killed at random makes; without it, a
//! few.

#![cfg(all(feature = "mpi", unix))]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gradwire::Rng;
use support::processes::{end, mpirun, open_mpi, signal};
use support::{Bench, below, kills, processes};

const SETTINGS: &str =
    "train --model mlp --data images --batch 8 --exchange all-gather --compressor 3lc";

/// The `mpirun` there is, which runs one job at a time: ranks wait for each other by polling.
struct Mpi {
    /// Whether it is Open MPI's.
    open: bool,
    _one: MutexGuard<'static, ()>,
}

/// `None` where there is no `mpirun`; the test says then that it is skipped.
fn mpi() -> Option<Mpi> {
    static JOBS: Mutex<()> = Mutex::new(());
    let Some(open) = open_mpi() else {
        support::skipped("training under MPI needs mpirun");
        return None;
    };
    Some(Mpi { open, _one: JOBS.lock().unwrap_or_else(PoisonError::into_inner) })
}

/// The same for a test that looks for the processes of a job, which only Linux lists in files.
fn mpi_with_processes() -> Option<Mpi> {
    if !fs::exists("/proc/self/environ").unwrap() {
        support::skipped("the ranks of a job are found in /proc");
        return None;
    }
    mpi()
}

/// A job of `processes` processes of `gradwire` with these arguments. Where they `go_on`, the other
/// ranks are not ended when one dies.
fn job(bench: &Bench, mpi: &Mpi, go_on: bool, processes: usize, line: &str) -> Command {
    let gradwire = bench.command(line);
    let mut command = mpirun((mpi.open, go_on), processes, &gradwire, &bench.path(""));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn digest(printed: &str) -> &str {
    let (_, digest) =
        printed.split_once("Digest of the parameters: ").expect("a run ends with its digest");
    digest.split_whitespace().next().unwrap()
}

#[test]
fn processes_have_the_bits_of_threads() {
    let Some(mpi) = mpi() else { return };
    let bench = Bench::with_images();
    for exchange in [
        "all-gather",
        "all-gather --overlap on",
        "server:servers=1",
        "scatter-reduce",
        "scatter-reduce --overlap on",
    ] {
        let line = SETTINGS.replace("all-gather", exchange) + " --steps 12";
        let here = bench.ok(&format!("{line} --workers 2"));
        let processes = if exchange.starts_with("server") { 3 } else { 2 };
        let output = job(&bench, &mpi, false, processes, &line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{exchange}: {said}{errors}");
        assert_eq!(digest(&said), digest(&here), "{exchange}");
        assert_eq!(said.matches("Digest").count(), 1, "one process reports: {said}");
    }
}

#[test]
fn an_interrupt_of_any_rank_stops_a_comparison() {
    let Some(mpi) = mpi_with_processes() else { return };
    let bench = Bench::with_images();
    let line =
        SETTINGS.replace("train", "compare --out out") + " --steps 100000000 --evaluations 1000000";
    let said = fs::File::create(bench.path("said")).unwrap();
    let mut child = job(&bench, &mpi, true, 2, &line).stderr(said).spawn().unwrap();
    while !bench.read_text("said").contains("accuracy") {
        assert!(child.try_wait().unwrap().is_none(), "the job ended early");
        std::thread::sleep(Duration::from_millis(10));
    }
    let ranks = ranks_of(&bench);
    let (other, _) = ranks.iter().find(|(_, rank)| *rank == 1).expect("rank 1 is running");
    assert!(signal(*other, "-INT"));
    let asked = Instant::now();
    while !ranks_of(&bench).is_empty() && asked.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = ranks_of(&bench);
    for (process, _) in &left {
        signal(*process, "-KILL");
    }
    end(&mut child);
    let said = bench.read_text("said");
    assert!(left.is_empty() && said.contains("0 of 1 runs are done"), "{said}");
    let mut names =
        fs::read_dir(bench.path("out")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.any(|name| name.to_string_lossy().starts_with("unfinished-")));
}

#[test]
fn more_servers_than_processes_are_refused() {
    let Some(mpi) = mpi() else { return };
    let bench = Bench::with_images();
    let line = SETTINGS.replace("all-gather", "server:servers=2") + " --steps 2";
    let output = job(&bench, &mpi, false, 2, &line).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("2 processes were started"), "{errors}");
}

#[test]
fn processes_that_mpi_does_not_connect_are_refused() {
    let Some(_mpi) = mpi() else { return };
    let bench = Bench::with_images();
    let line = SETTINGS.to_owned() + " --steps 2 --save at.state";
    // As srun --mpi=none starts them; Open MPI would ask Slurm itself for more.
    let mut command = bench.command(&line);
    let output = command.env("SLURM_STEP_NUM_TASKS", "2").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    for part in ["2 processes", "SLURM_STEP_NUM_TASKS=2", "a single process", "--mpi=pmix"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    assert!(!bench.path("at.state").exists());
}

fn ranks_of(bench: &Bench) -> Vec<(u32, usize)> {
    processes::ranks_of(&bench.path(""))
}

#[test]
fn a_killed_worker_is_named_and_the_run_goes_on_from_its_checkpoint() {
    let Some(mpi) = mpi_with_processes() else { return };
    let bench = Bench::with_images();
    let line = format!("{SETTINGS} --steps 220 --evaluations 110 --deadline 3");
    let whole = bench.ok(&format!("{line} --workers 3"));
    // Ten moments where more is asked for.
    let step = if kills(FEW) > FEW { 1 } else { 3 };
    let moments = (1..=10u64).step_by(step);
    for moment in moments {
        let state = format!("{moment}.state");
        // Gradients that leave early are the same bits.
        let overlap = if moment % 2 == 0 { "--overlap on" } else { "" };
        let saving = format!("{line} {overlap} --save {state} --save-every 7 --keep 2");
        let mut child = job(&bench, &mpi, true, 3, &saving).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        // Evaluated every other step; saved every seventh.
        let reached = format!("step {}/220", 20 * moment);
        let mut said = Vec::new();
        let begun = lines.by_ref().any(|line| {
            said.push(line);
            said[said.len() - 1].contains(&reached)
        });
        assert!(begun, "{reached} was never reached: {said:?}");
        std::thread::sleep(Duration::from_millis(3 * moment));
        let ranks = ranks_of(&bench);
        let (victim, _) = ranks.iter().find(|(_, rank)| *rank == 1).expect("rank 1 is running");
        assert!(signal(*victim, "-KILL"));
        // Both others say which rank is gone.
        let named = lines.by_ref().filter(|line| line.contains("rank 1 ")).take(2).count();
        assert_eq!(named, 2, "moment {moment}");
        end(&mut child);
        let resumed = bench.ok(&format!("{line} --workers 3 --resume {state}"));
        assert_eq!(digest(&resumed), digest(&whole), "killed at {reached}");
    }
}

#[test]
fn the_ranks_that_are_left_go_on_when_another_is_killed() {
    let Some(mpi) = mpi_with_processes() else { return };
    // Each exchange once where nobody asks for more.
    let (runs, mut draws) = (kills(3), Rng::new(9, 0, 0, 0, 0));
    let mut longest = Duration::ZERO;
    for at in 0..runs {
        let bench = Bench::with_images();
        let exchange = ["all-gather", "server:servers=1", "scatter-reduce"][at % 3];
        let line = SETTINGS.replace("all-gather", exchange).replace("mlp", "mlp:16")
            + " --steps 600 --evaluations 1 --deadline 3 --min-workers 1 --save run.state --save-every 20";
        let said = fs::File::create(bench.path("said")).unwrap();
        let mut child = job(&bench, &mpi, true, 4, &line).stderr(said).spawn().unwrap();
        // Once it trains.
        while !bench.path("run.state").exists() {
            assert!(child.try_wait().unwrap().is_none(), "{exchange}: the job ended early");
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_micros(below(150_000, &mut draws)));
        let ranks = ranks_of(&bench);
        assert_eq!(ranks.len(), 4, "{exchange}: {}", String::from_utf8_lossy(&bench.read("said")));
        let (victim, rank) = ranks[below(4, &mut draws) as usize];
        assert!(signal(victim, "-KILL"));
        let killed = Instant::now();
        let mut printed = String::new();
        // However slow they are, the ranks that are left save their state every 20 steps.
        let state = bench.path("run.state");
        let idle = || {
            let saved = fs::metadata(&state).and_then(|state| state.modified()).ok();
            saved.and_then(|at| at.elapsed().ok()).unwrap_or_default().min(killed.elapsed())
        };
        while ranks_of(&bench).len() > 1 && idle() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let hangs = ranks_of(&bench).len() > 1;
        // The last one may still print the result.
        for _ in 0..500 {
            if ranks_of(&bench).is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        longest = longest.max(killed.elapsed());
        end(&mut child);
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let said = String::from_utf8_lossy(&bench.read("said")).into_owned();
        let what = format!("{exchange} without rank {rank}: {printed}{said}");
        assert!(!hangs, "a rank hangs: {what}");
        // The digest was compared on all ranks every hundred steps.
        assert_eq!(printed.matches("Digest of the parameters").count(), 1, "{what}");
        assert!(printed.contains(&format!(", because rank {rank} was lost.")), "{what}");
        // The first rank says so; if it is lost, the next one, which names the run from then on.
        assert!(said.contains("the run continues from step"), "{what}");
        assert!(!said.lines().any(|line| line.starts_with(": ")), "{what}");
    }
    println!(
        "{runs} runs went on without a rank; the longest ended {longest:?} after it was killed"
    );
}

/// Runs of this test where nobody asks for more.
const FEW: usize = 4;

/// What ranks are given to wait, and how much later than that none may be left: a rank that starts
/// while others test on the same cores begins to wait late.
const DEADLINE: Duration = Duration::from_secs(3);
const LATE: Duration = Duration::from_secs(8);

#[test]
fn no_rank_outlives_its_deadline_wherever_another_is_killed() {
    let Some(mpi) = mpi_with_processes() else { return };
    let (runs, mut draws) = (kills(FEW), Rng::new(3, 0, 0, 0, 0));
    let (mut failures, mut longest) = (Vec::new(), Duration::ZERO);
    for at in 0..runs {
        let bench = Bench::with_images();
        // In the first two seconds, MPI_Init among them, or later; alone, or with the launcher
        // ending the others.
        let (early, go_on) = (at % 2 == 0, at / 2 % 2 == 0);
        let exchange = ["all-gather", "server:servers=1", "scatter-reduce"][at / 4 % 3];
        let line = SETTINGS.replace("all-gather", exchange).replace("mlp", "mlp:256")
            + " --steps 1000000 --evaluations 1 --deadline 3 --save run.state --save-every 50";
        let said = fs::File::create(bench.path("said")).unwrap();
        let mut child =
            job(&bench, &mpi, go_on, 3, &line).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let moment = below(2_000_000, &mut draws) + if early { 0 } else { 2_000_000 };
        std::thread::sleep(Duration::from_micros(moment));
        let start = Instant::now();
        let mut ranks = ranks_of(&bench);
        while ranks.is_empty() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
            ranks = ranks_of(&bench);
        }
        assert!(!ranks.is_empty(), "the job has no ranks after {moment} µs");
        signal(ranks[below(ranks.len() as u64, &mut draws) as usize].0, "-KILL");
        let killed = Instant::now();
        while !ranks.is_empty() && killed.elapsed() < 4 * DEADLINE {
            std::thread::sleep(Duration::from_millis(10));
            ranks = ranks_of(&bench);
        }
        let took = killed.elapsed();
        longest = longest.max(took);
        if took > DEADLINE + LATE {
            let said = String::from_utf8_lossy(&bench.read("said")).into_owned();
            let left = ranks.len();
            failures.push(format!(
                "{exchange}, killed after {moment} µs, others go on: {go_on}: {left} ranks left after {took:?}: {said}"
            ));
        }
        for (process, _) in ranks {
            signal(process, "-KILL");
        }
        end(&mut child);
    }
    let failed = failures.len();
    println!(
        "{runs} runs with a rank killed, {failed} failed; the last rank ended after {longest:?} at most"
    );
    assert!(failures.is_empty(), "{failed} of {runs} failed:\n{}", failures.join("\n"));
}
