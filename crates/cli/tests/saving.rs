//! What `train` saves, resumes from, and does not overwrite.

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use support::{Bench, TINY, rows};

#[test]
fn a_resumed_run_has_the_bits_of_one_never_stopped() {
    let bench = Bench::with_images();
    let digest = |more: &str| {
        let line = format!("train {TINY} --compressor 3lc --steps 8 {more}");
        rows(&bench, &line)[0]["digest"].clone()
    };
    let whole = digest("");
    assert_eq!(whole, digest("--save at.state --save-every 3"));
    assert_eq!(whole, digest("--resume at.state"));
    // The folder is made.
    assert_eq!(whole, digest("--save deep/down/at.state"));
    assert_eq!(whole, digest("--resume deep/down/at.state"));
    let line = format!("train {TINY} --compressor 3lc --steps 8 --resume at.state");
    for (here, other, says) in [("3lc", "onebit", "at.state"), ("mlp", "lenet5", "lenet5")] {
        let error = bench.refused(&line.replace(here, other));
        assert!(error.contains(here) && error.contains(says), "{error}");
    }
    bench.write("cut.state", &bench.read("at.state")[..100]);
    bench.refused(&format!("train {TINY} --compressor 3lc --steps 8 --resume cut.state"));
    // The one before it, after six steps, is still there.
    bench.write("at.state", &bench.read("cut.state"));
    assert_eq!(whole, digest("--resume at.state"));
}

#[test]
fn no_file_that_the_user_names_is_lost() {
    let bench = Bench::with_images();
    let line = format!("{TINY} --steps 2 --compressor none");
    bench.ok(&format!("train {line} --save run.state"));
    for (name, text) in [("notes.txt", "text"), ("notes.txt.2", "older"), ("run.state.2", "other")]
    {
        bench.write(name, text.as_bytes());
    }
    std::fs::create_dir(bench.path("folder")).unwrap();
    bench.refuses(&[
        (&format!("train {line} --save notes.txt"), "is not a checkpoint"),
        (&format!("train {line} --save run.state"), "'./run.state.2' is not a checkpoint"),
        (&format!("train {line} --resume run.state --out run.state"), "uses this name"),
        (&format!("train {line} --save new.state --out new.state.1"), "uses this name"),
        (&format!("train {line} --save new.state --out folder"), "'folder': it is a folder"),
    ]);
    assert_eq!(bench.read_text("notes.txt"), "text");
    // Settings come from the file in the folder of the comparison.
    let text =
        format!("# Ours.\n{}", "model = 'mlp:4'\ndata = 'images'\nbatch = 4\nevaluations = 1\n");
    bench.write("folder/experiment.toml", text.as_bytes());
    bench
        .ok("compare --experiment folder/experiment.toml --steps 2 --compressor none --out folder");
    assert_eq!(bench.read_text("folder/experiment.toml"), text);
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_cleanly_and_a_checkpoint_is_left() {
    let bench = Bench::with_images();
    let often = TINY.replace("--evaluations 2", "--evaluations 100000");
    let line = format!("train {often} --steps 1000000 --save at.state");
    let mut child = bench.command(&line).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("accuracy")), "the run has begun");
    assert!(support::processes::signal(child.id(), "-INT"));
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.iter().any(|line| line.contains("interrupted") && line.contains("at.state")));
    assert!(bench.path("at.state").exists());
}

#[cfg(unix)]
#[test]
fn two_runs_do_not_write_one_file() {
    let bench = Bench::with_images();
    let often = TINY.replace("--evaluations 2", "--evaluations 100000");
    let start = |more: &str| {
        let line = format!("train {often} --steps 1000000 {more}");
        let mut child = bench.command(&line).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("accuracy")), "the run has begun");
        // The other end stays open, or the run could not report.
        std::thread::spawn(move || lines.count());
        child
    };
    let short = format!("train {TINY} --steps 8");
    let mut child = start("--save at.state --out out.json");
    for (file, flag) in [("at.state", "--save"), ("out.json", "--out")] {
        let error = bench.refused(&format!("{short} {flag} {file}"));
        assert!(error.contains(&format!("'{file}'")), "{error}");
        assert!(error.contains(&format!("process {}", child.id())), "{error}");
    }
    bench.ok(&format!("{short} --save other.state"));
    // An interrupt ends the lock, and so does the end of a process that is killed.
    assert!(support::processes::signal(child.id(), "-INT"));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut child = start("--resume at.state --save at.state");
    child.kill().unwrap();
    child.wait().unwrap();
    bench.ok(&format!("{short} --save at.state"));
    bench.ok(&format!("{short} --save at.state --resume at.state --out out.json"));
    let left = bench.names().into_iter().find(|name| name.contains("lock"));
    assert_eq!(left, None);
}

/// A job of several processes without MPI: a plain `srun`, or `torchrun`.
#[test]
fn copies_that_a_launcher_starts_are_refused() {
    let bench = Bench::with_images();
    let srun = [("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_NTASKS", "2"), ("SLURM_PROCID", "0")];
    let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("WORLD_SIZE", "2"), ("RANK", "0")];
    let lines = [
        format!("train {TINY} --steps 2 --save at.state"),
        format!("compare {TINY} --steps 2 --out out"),
        "reproduce exchange-scaling --out out".to_owned(),
        "reproduce grace-fig8 --out out".to_owned(),
        "reproduce grace-fig9 --out out".to_owned(),
    ];
    for (variables, found) in [(srun, "SLURM_STEP_NUM_TASKS=2"), (torchrun, "WORLD_SIZE=2")] {
        // A build with MPI asks it how many processes there are.
        if cfg!(feature = "mpi") && found.starts_with("SLURM") {
            continue;
        }
        for line in &lines {
            let output = bench.command(line).envs(variables).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{line}: {error}");
            assert!(error.contains(found) && error.contains("2 processes"), "{line}: {error}");
        }
    }
    assert_eq!(bench.names(), ["images"]);
    // A batch script has the tasks of its job, and runs once.
    let batch = [("SLURM_NTASKS", "2"), ("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7")];
    let output = bench.command(&lines[0]).envs(batch).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The output of a shell script with a file system of 64 megabytes mounted at `disk`; `None` if the
/// system does not allow to mount one.
#[cfg(target_os = "linux")]
fn on_a_small_disk(bench: &Bench, script: &str) -> Option<std::process::Output> {
    std::fs::create_dir(bench.path("disk")).unwrap();
    let shell = |script: &str| {
        let script = format!("mount -t tmpfs -o size=64m small disk || exit 1; {script}");
        let mut shell = std::process::Command::new("unshare");
        shell.args(["-rm", "sh", "-c", &script, env!("CARGO_BIN_EXE_gradwire")]);
        shell.current_dir(bench.path("")).env_remove("GRADWIRE_DATA").output().ok()
    };
    if !shell("true").is_some_and(|output| output.status.success()) {
        support::skipped("a small disk needs user namespaces (unshare -rm)");
        return None;
    }
    shell(script)
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_no_checkpoint_that_was_good() {
    let bench = Bench::with_images();
    let train = format!("\"$0\" train {TINY} --compressor 3lc --steps 8 --save-every 3");
    let whole = rows(&bench, &format!("train {TINY} --compressor 3lc --steps 8"));
    // The disk is filled up to the last byte when the checkpoints after 3, 6 and 8 steps are there;
    // the run goes on from the last but one, which must write again.
    let script = format!(
        "{train} --keep 2 --save disk/run.state || exit 1
         mv disk/run.state.1 disk/run.state && cp disk/run.state before.state || exit 1
         cat /dev/zero > disk/filler 2> /dev/null
         {train} --resume disk/run.state --save disk/run.state 2> full.txt && exit 1
         cmp disk/run.state before.state || exit 1
         ls disk > names.txt; rm disk/filler
         {train} --resume disk/run.state --save disk/run.state --json > resumed.json"
    );
    let Some(output) = on_a_small_disk(&bench, &script) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let error = bench.read_text("full.txt");
    assert!(error.contains("run.state") && error.contains("No space left"), "{error}");
    assert_eq!(bench.read("names.txt"), b"filler\nrun.state\n");
    let resumed: Vec<serde_json::Value> =
        serde_json::from_slice(&bench.read("resumed.json")).unwrap();
    assert_eq!(whole[0]["digest"], resumed[0]["digest"]);
}
