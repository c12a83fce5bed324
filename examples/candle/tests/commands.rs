//! The model and the data in commands, and candle's own loop over two processes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn gradwire(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spirals-gradwire"));
    command.current_dir(folder).args(arguments.split(' ')).output().unwrap()
}

/// What a command prints.
fn printed(folder: &Path, arguments: &str) -> String {
    let output = gradwire(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a command.
fn refused(folder: &Path, arguments: &str) -> String {
    let output = gradwire(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

const RUNS: &str = "compare --data spirals/points --model spirals/mlp:hidden=48 --workers 2 --steps 300 \
                    --compressor none --compressor eden --compressor topk:ratio=0.1 --seed 1 --link 100mbit";

#[test]
fn compare_trains_the_model_and_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let table = printed(folder.path(), RUNS);
    assert!(table.contains("eden") && table.contains("topk:ratio=0.1"), "{table}");
    let report = folder.path().join("gradwire-report");
    assert!(
        fs::read_to_string(report.join("report.html")).unwrap().contains("spirals/mlp:hidden=48")
    );
    assert!(fs::read_to_string(report.join("experiment.toml")).unwrap().contains("spirals/points"));
    let runs = fs::read_to_string(report.join("runs.jsonl")).unwrap();
    let qualities: Vec<f64> = runs
        .lines()
        .map(|line| line.split("\"quality\":").last().unwrap())
        .map(|rest| rest.split([',', '}']).next().unwrap().parse().unwrap())
        .collect();
    // A third is chance.
    assert!(
        qualities.len() == 3 && qualities.iter().all(|quality| *quality > 0.9),
        "{qualities:?}"
    );
    // Finished runs are not repeated; the file is the same.
    printed(folder.path(), &format!("{RUNS} --resume"));
    assert_eq!(fs::read_to_string(report.join("runs.jsonl")).unwrap(), runs);
}

#[test]
fn wrong_names_are_refused_with_the_right_ones() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments| refused(folder.path(), arguments);
    assert!(refused("compare --model spirals/mpl").contains("did you mean 'spirals/mlp'"));
    assert!(refused("compare --model spirals/mlp:hiden=3").contains("did you mean 'hidden'"));
    assert!(refused("compare --model spirals/mlp").contains("give --data spirals/points"));
    assert!(refused("compare --data spirals/pionts").contains("did you mean 'spirals/points'"));
    assert!(printed(folder.path(), "compare --help").contains("spirals/mlp:hidden=64"));
    assert!(printed(folder.path(), "data").contains("points on three arms"));
}

#[test]
fn two_processes_train_with_candle_alone_and_end_with_the_same_weights() {
    let output = Command::new(env!("CARGO_BIN_EXE_two_processes")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let digests: Vec<_> = printed.lines().filter_map(|line| line.split_once("digest ")).collect();
    assert!(digests.len() == 2 && digests[0].1 == digests[1].1, "{printed}");
}
