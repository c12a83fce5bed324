//! `reproduce --check`: repeats runs, and compares them.

mod support;

use support::Bench;

const TRAIN: &str = "train --data images --model mlp:8 --workers 2 --batch 4 --steps 12";

/// What was printed, without the line breaks of the terminal's width.
fn unwrapped(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn runs_repeat_and_changed_ones_are_told_apart() {
    let bench = Bench::with_images();
    for (folder, compressor) in [("all/a", "topk"), ("all/b", "3lc")] {
        std::fs::create_dir_all(bench.path(folder)).unwrap();
        bench.ok(&format!("{TRAIN} --compressor {compressor} --out {folder}/runs.jsonl"));
    }
    let said = bench.ok("reproduce --check all");
    let expected = "2 identical, 0 with other bytes, 0 with the same figures but other bits, 0 that differ, 0 not checked.";
    assert!(unwrapped(&said).ends_with(expected), "{said}");
    assert!(said.contains("a 1: topk, seed 0, 12 steps"), "{said}");
    let said = bench.ok("reproduce --check all --row 3lc --steps 10");
    assert!(said.contains("1 identical, 0") && !said.contains("topk"), "{said}");

    let line = TRAIN.replace("--steps 12", "--steps 5");
    std::fs::create_dir_all(bench.path("mixed")).unwrap();
    bench.ok(&format!("{line} --compressor none --out mixed/runs.jsonl"));
    let long = bench.read_text("all/b/runs.jsonl");
    bench.write("mixed/runs.jsonl", (bench.read_text("mixed/runs.jsonl") + &long).as_bytes());
    let said = bench.ok("reproduce --check mixed --steps 10");
    assert!(said.contains("not checked: the record has no digest after 10 steps"), "{said}");
    assert!(
        said.contains("1 identical, 0") && unwrapped(&said).ends_with("1 not checked."),
        "{said}"
    );

    let run = bench.read_text("all/a/runs.jsonl");
    let (before, _) = run.split_once("\"digest\":\"").unwrap();
    let other = run.replacen(&run[before.len()..][..26], "\"digest\":\"0123456789abcdef", 1);
    bench.write("all/a/runs.jsonl", other.as_bytes());
    let said = bench.ok("reproduce --check all/a");
    assert!(said.contains("same figures, other bits (all marks are equal"), "{said}");
    bench.write("all/a/runs.jsonl", other.replace("\"bytes_up\":", "\"bytes_up\":1").as_bytes());
    let output = bench.run("reproduce --check all");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("1 of 2 runs differ from the committed runs"), "{error}");

    let output = bench.run("reproduce --check all/b --data digits");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("not checked: the checksum of the data set 'digits' differs"), "{said}");

    bench.refuses(&[
        ("reproduce --check all --workers 3", "the only settings it takes are --data and --steps"),
        ("reproduce --check all --row 4lc", "'4lc'; give a line number, or one of 3lc, topk"),
        ("reproduce --check all/b --steps 11", "no digest after 11 steps; it has digests after 10"),
        ("reproduce --check images", "no runs.jsonl with runs in 'images'"),
        ("reproduce --check nowhere", "'nowhere'"),
        ("reproduce 3lc-table1 --check all", "cannot be used with"),
    ]);
}
