//! Signals to processes, and jobs under `mpirun`. `xtask` includes this file, too.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Sends a signal, such as `-KILL`, to a process. Returns whether there was such a process.
pub fn signal(process: u32, name: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.args([name, &process.to_string()]).stderr(Stdio::null()).status().unwrap().success()
}

/// Whether a process ends within this time, or has ended.
pub fn ends_within(child: &mut Child, time: Duration) -> bool {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > time {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Waits for the end of a job whose ranks have ended; some versions of Open MPI wait for ever then.
pub fn end(child: &mut Child) {
    if !ends_within(child, Duration::from_millis(500)) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Whether `mpirun` is Open MPI's; `None` if there is no `mpirun`.
pub fn open_mpi() -> Option<bool> {
    let output = Command::new("mpirun").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).contains("Open MPI"))
}

/// A job of `processes` processes of `program` in `folder`, by `mpirun`, which is Open MPI's if
/// `open`. If the ranks `go_on`, the launcher does not end the others when one dies; it then
/// returns 0, whatever their status.
pub fn mpirun(
    (open, go_on): (bool, bool),
    processes: usize,
    program: &Command,
    folder: &Path,
) -> Command {
    let options: &[&str] = match (open, go_on) {
        (true, false) => &["--allow-run-as-root", "--oversubscribe"],
        (true, true) => &["--allow-run-as-root", "--oversubscribe", "--enable-recovery"],
        (false, false) => &[],
        (false, true) => &["-disable-auto-cleanup"],
    };
    let mut command = Command::new("mpirun");
    command.args(options).args(["-n", &processes.to_string()]);
    command.arg(program.get_program()).args(program.get_args());
    // A launcher that is killed leaves its files behind.
    command.current_dir(folder).env("TMPDIR", folder).stdin(Stdio::null());
    command
}

/// The processes of the job in a folder that have not ended, each with its rank. Needs Linux.
pub fn ranks_of(folder: &Path) -> Vec<(u32, usize)> {
    let rank_of = |process: u32| -> Option<usize> {
        let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
        let value = |name: &[u8]| {
            let mut variables = environment.split(|byte| *byte == 0);
            variables.find_map(|variable| variable.strip_prefix(name))
        };
        let rank = value(b"OMPI_COMM_WORLD_RANK=").or_else(|| value(b"PMI_RANK="))?;
        let here = value(b"TMPDIR=")?.starts_with(folder.as_os_str().as_encoded_bytes());
        std::str::from_utf8(rank).ok()?.parse().ok().filter(|_| here)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let processes = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(|process| Some((process, rank_of(process)?))).collect()
}
