//! The checks of the exchanges with ranks that are processes, and what happens when one of them comes
//! to harm. `examples/ranks.rs` is a rank.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// No check takes so long, unless something hangs.
const HANGS: Duration = Duration::from_secs(300);
/// How long a job may take to end after its last word.
const ENDS: Duration = Duration::from_secs(5);

/// One job at a time: ranks wait for each other by polling.
static JOBS: Mutex<()> = Mutex::new(());

/// What became of a job.
struct Job {
    /// Whether it ended with a status other than 0.
    failed: bool,
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

/// Runs so many `ranks` with these arguments until so many lines have been said, and the job ends. If one
/// rank dies, the others `go_on`, or are ended with it.
fn mpirun(open_mpi: bool, ranks: usize, arguments: [&str; 2], lines: usize, go_on: bool) -> Job {
    let _one = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let options: &[&str] = match (open_mpi, go_on) {
        (true, false) => &["--allow-run-as-root", "--oversubscribe"],
        (true, true) => &["--allow-run-as-root", "--oversubscribe", "--enable-recovery"],
        (false, false) => &[],
        (false, true) => &["-disable-auto-cleanup"],
    };
    // A launcher that is killed leaves its files behind.
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("mpirun")
        .env("TMPDIR", folder.path())
        .args(options)
        .args(["-n", &ranks.to_string()])
        .arg(rank())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
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
    let status = end(&mut child);
    reader.join().unwrap();
    Job { failed: status.is_some_and(|status| !status.success()), output: output.join("\n") }
}

/// Waits for a job that has said all it had to say. After the failure of a rank some versions of
/// Open MPI wait for themselves for ever; then there is no status.
fn end(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < ENDS {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// The program that is a rank, which `cargo test` builds with all tests (with `--test` it builds no examples).
fn rank() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join("ranks")
}

fn matrix(name: &str, ranks: &[usize]) {
    let Some(open_mpi) = open_mpi("a matrix of checks") else { return };
    for &ranks in ranks {
        let job = mpirun(open_mpi, ranks, ["matrix", name], ranks, false);
        assert!(!job.failed, "{name} with {ranks} ranks: {}", job.output);
        let said = job.output.matches("checked").count();
        assert_eq!(said, ranks, "{name}: every rank has checked something: {}", job.output);
    }
}

/// Asserts that the ranks but 1 name it, in jobs where it comes to harm. The others are told to go on: else the
/// first of them that ends with its error has the rest ended before they have said theirs.
fn named(how: &str, expected: &str) {
    let Some(open_mpi) = open_mpi("a job in which a rank comes to harm") else { return };
    // The one that differs is told so as well.
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
fn all_reduce() {
    matrix("all-reduce", &[2, 3, 4]);
}

#[test]
fn all_gather() {
    matrix("all-gather", &[2, 3, 4]);
}

#[test]
fn scatter_reduce() {
    matrix("scatter-reduce", &[2, 3, 4]);
}

#[test]
fn sparse_all_reduce() {
    matrix("sparse-all-reduce", &[2, 3, 4]);
}

#[test]
fn hierarchical() {
    matrix("hierarchical", &[2, 3, 4]);
    matrix("hierarchical:node=3", &[4]);
}

#[test]
fn one_server() {
    matrix("server", &[2, 3, 4]);
}

#[test]
fn a_server_without_slack() {
    matrix("server:stale=0", &[3]);
}

#[test]
fn three_servers() {
    matrix("server:servers=3", &[4]);
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    // Some are behind by a step when they are told to stop.
    named("early", "step ");
}

#[test]
fn a_silent_rank_is_named_when_the_deadline_is_over() {
    named("silent", "step ");
}

#[test]
fn a_killed_rank_is_named_when_the_deadline_is_over() {
    // What it sent in the step before may be lost with it.
    named("killed", "step ");
}

#[test]
fn a_rank_that_panics_is_named() {
    named("panics", "step ");
}

#[test]
fn a_rank_with_another_configuration_is_named_with_the_difference() {
    named("differs", "was started with compressor fp16");
}

#[test]
fn a_rank_that_is_stuck_inside_mpi_is_ended_and_says_so() {
    let Some(open_mpi) = open_mpi("a rank that is stuck") else { return };
    let _one = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("mpirun");
    command.env("TMPDIR", folder.path());
    if open_mpi {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    command.args(["-n", "2"]).arg(rank()).args(["absent", "all-gather"]);
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
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
    assert!(mpirun(open_mpi, 3, ["killed", "all-gather"], usize::MAX, false).failed);
}
