//! The checks of the exchanges with processes as ranks, and the errors of the other ranks when one
//! fails. Each process runs `examples/ranks.rs`.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// No check takes so long, unless something hangs.
const HANGS: Duration = Duration::from_secs(300);
/// How long a job may take to end after its last line.
const ENDS: Duration = Duration::from_secs(30);
/// The same for the launcher of a job that goes on without one of its ranks: some versions of Open
/// MPI never end then.
const STAYS: Duration = Duration::from_millis(500);

/// One job at a time: ranks wait for each other by polling.
static JOBS: Mutex<()> = Mutex::new(());

/// The result of a job.
struct Job {
    /// `None` if its launcher did not end.
    status: Option<ExitStatus>,
    output: String,
}

/// Whether `mpirun` is Open MPI's. Where there is none, the test says that it is skipped.
fn open_mpi(test: &str) -> Option<bool> {
    match Command::new("mpirun").arg("--version").output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).contains("Open MPI")),
        Err(_) => {
            // Past the test runner, which keeps what `println!` says of a test that passes.
            let _ = writeln!(io::stdout(), "skipped: {test} needs mpirun");
            None
        }
    }
}

/// The command that starts a job, whose launcher keeps its files in `folder`: a launcher that is
/// killed leaves them behind. If one rank dies, the others `go_on`, or are ended with it.
fn command(
    open_mpi: bool,
    folder: &Path,
    ranks: usize,
    arguments: [&str; 2],
    go_on: bool,
) -> Command {
    let options: &[&str] = match (open_mpi, go_on) {
        (true, false) => &["--allow-run-as-root", "--oversubscribe"],
        (true, true) => &["--allow-run-as-root", "--oversubscribe", "--enable-recovery"],
        (false, false) => &[],
        (false, true) => &["-disable-auto-cleanup"],
    };
    let mut command = Command::new("mpirun");
    command.env("TMPDIR", folder).args(options).args(["-n", &ranks.to_string()]);
    command.arg(rank()).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a job until it has printed this number of `lines`, and waits for its end.
fn mpirun(open_mpi: bool, ranks: usize, arguments: [&str; 2], lines: usize, go_on: bool) -> Job {
    let _one = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(open_mpi, folder.path(), ranks, arguments, go_on);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (line_of, said) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        stdout.lines().map_while(Result::ok).try_for_each(|line| line_of.send(line)).ok();
    });
    let mut output: Vec<String> = Vec::new();
    while output.len() < lines {
        match said.recv_timeout(HANGS) {
            Ok(line) => output.push(line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                panic!("{ranks} ranks hang in {arguments:?}, having said {output:?}");
            }
        }
    }
    let status = end(&mut child, if go_on { STAYS } else { ENDS });
    reader.join().unwrap();
    Job { status, output: output.join("\n") }
}

/// Waits for a job that has printed all its lines, and ends its launcher after this time; then
/// there is no status.
fn end(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// The program that is a rank, which `cargo test` builds with all tests (with `--test` it builds no
/// examples).
fn rank() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join("ranks")
}

fn matrix(name: &str, ranks: &[usize]) {
    let Some(open_mpi) = open_mpi("a matrix of checks") else { return };
    for &ranks in ranks {
        let job = mpirun(open_mpi, ranks, ["matrix", name], ranks, false);
        let succeeded = job.status.is_some_and(|status| status.success());
        assert!(succeeded, "{name} with {ranks} ranks ends with {:?}: {}", job.status, job.output);
        let said = job.output.matches("checked").count();
        assert_eq!(said, ranks, "{name}: every rank has checked something: {}", job.output);
    }
}

/// Asserts that the other ranks name rank 1 if it fails. The others continue after
/// its end: otherwise the first rank that fails would end the rest before they print their errors.
fn named(how: &str, expected: &str) {
    let Some(open_mpi) = open_mpi("a job in which a rank fails") else { return };
    // A rank with another configuration prints the error, too.
    let lines = if how == "differs" { 4 } else { 3 };
    for name in ["all-gather", "scatter-reduce", "hierarchical", "server"] {
        let job = mpirun(open_mpi, 4, [how, name], lines, true);
        for rank in [0, 2, 3] {
            let said = format!("rank {rank}: ");
            let line = job.output.lines().find_map(|line| line.strip_prefix(&said));
            let line = line.unwrap_or_else(|| panic!("{how}, {name}: {said}{}", job.output));
            assert!(line.contains("rank 1") && line.contains(expected), "{how}, {name}: {line}");
        }
    }
}

#[test]
fn every_exchange_passes_the_checks() {
    matrix("all-reduce", &[2, 3]);
    matrix("all-gather", &[2, 3]);
    matrix("scatter-reduce", &[2, 3]);
    matrix("sparse-all-reduce", &[2, 3]);
    matrix("hierarchical", &[2, 4]);
    matrix("hierarchical:node=3", &[4]);
    matrix("server", &[2, 4]);
    matrix("server:stale=0", &[3]);
    matrix("server:servers=3", &[4]);
}

#[test]
fn mpi_obeys_the_laws() {
    let Some(open_mpi) = open_mpi("the laws of transports") else { return };
    let lines = 3 * gradwire_exchange::laws::LAWS.len();
    let job = mpirun(open_mpi, 3, ["laws", "all"], lines, false);
    assert!(job.status.is_some_and(|status| status.success()), "{:?}: {}", job.status, job.output);
    assert_eq!(job.output.lines().count(), lines, "{}", job.output);
}

#[test]
fn a_rank_that_comes_to_harm_is_named() {
    // Some ranks are one step behind when they are told to stop. For a killed rank, messages of the
    // step before may be lost.
    for how in ["early", "silent", "killed", "panics"] {
        named(how, "step ");
    }
    named("differs", "was started with compressor fp16");
}

#[test]
fn a_rank_that_left_with_an_error_of_its_own_meets_the_others() {
    let Some(open_mpi) = open_mpi("a job whose ranks connect again") else { return };
    for ranks in [2, 3] {
        let job = mpirun(open_mpi, ranks, ["meets", "all-gather"], ranks, true);
        let said = job.output.matches(&format!("{ranks} are left")).count();
        assert_eq!(said, ranks, "{}", job.output);
    }
}

#[test]
fn a_rank_that_ends_between_two_runs_is_gone_at_once() {
    let Some(open_mpi) = open_mpi("a job whose first rank ends early") else { return };
    let job = mpirun(open_mpi, 2, ["between", "all-gather"], 1, true);
    assert!(job.output.contains("rank 1: rank 0 is gone"), "{}", job.output);
}

#[test]
fn a_rank_that_is_stuck_inside_mpi_is_ended_and_says_so() {
    let Some(open_mpi) = open_mpi("a rank that is stuck") else { return };
    let _one = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(open_mpi, folder.path(), 2, ["absent", "all-gather"], false);
    let start = Instant::now();
    let output = command.output().unwrap();
    // Rank 1 would come after a minute only.
    assert!(start.elapsed() < Duration::from_secs(30));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in
        ["rank 0 has been stuck in \"MPI_Init\"", "deadline of 3.0 s", "start the job again"]
    {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(output.status.code(), Some(gradwire_mpi::STUCK_STATUS), "{said}");
}

#[test]
fn a_job_fails_when_a_rank_is_killed() {
    let Some(open_mpi) = open_mpi("a job that fails") else { return };
    let job = mpirun(open_mpi, 3, ["killed", "all-gather"], usize::MAX, false);
    assert!(job.status.is_some_and(|status| !status.success()), "{:?}: {}", job.status, job.output);
}
