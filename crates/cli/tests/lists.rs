//! Verbs that look things up: `list`, `bench`, `data`, help and version.

mod support;

use serde_json::Value;
use support::Bench;

#[test]
fn list_has_a_row_for_each_registered_compressor() {
    let bench = Bench::new();
    let rows: Vec<Value> = serde_json::from_str(&bench.ok("list --json")).unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let registered: Vec<&str> = gradwire::registry::REGISTRY.iter().map(|entry| entry.id).collect();
    assert_eq!(ids, registered);
    for row in &rows {
        for key in ["family", "aggregation", "error_feedback", "parameters", "formula", "reference"]
        {
            assert!(!row[key].is_null(), "{key} is missing");
        }
    }
    let s = rows.iter().find(|row| row["id"] == "3lc").unwrap();
    assert_eq!(s["parameters"][0]["key"], "s");
    let table = bench.ok("list");
    assert!(ids.iter().all(|id| table.contains(id)));
    assert!(table.contains(" every=N ") && table.contains(" --svrg N "));
    let narrow = |line: &str| {
        let output = bench.command(line).env_remove("COLUMNS").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 9, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    };
    ["list", "list 3lc topk", "data", "env", "reproduce"].into_iter().for_each(narrow);
    let markdown = bench.ok("list --markdown");
    assert!(markdown.starts_with("| compressor | family | what it does |\n|---|---|---|\n"));
    let csv = bench.ok("list --csv");
    assert_eq!(csv.lines().count(), ids.len() + 1);
    assert!(bench.refused("list --csv --json").contains("cannot be used with"));
}

#[test]
fn list_describes_a_compressor() {
    let bench = Bench::new();
    let described = bench.ok("list 3lc sbc2 sbc");
    assert!(described.contains("x̂ = M·round(c/M), M = s·max|c|\n"), "{described}");
    assert!(described.contains("\nsbc:every=10: "), "{described}");
    assert!(described.contains("\nsbc: ") && described.contains("Golomb"), "{described}");
    // Its own parameters and the common ones.
    for parameter in ["zre", "every"] {
        assert!(described.lines().any(|line| line.trim().starts_with(parameter)), "{described}");
    }
    let rows: Vec<Value> = serde_json::from_str(&bench.ok("list --json sbc2")).unwrap();
    assert!(rows.len() == 1 && rows[0]["id"] == "sbc");
    assert!(bench.refused("list 3lx").contains("3lc"));
}

#[test]
fn bench_measures_what_it_is_told() {
    let bench = Bench::new();
    let line = "bench --quick --json --elements 1000 --compressor none --compressor 3lc";
    let rows: Vec<Value> = serde_json::from_str(&bench.ok(line)).unwrap();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row["elements"], 1000);
        for key in
            ["compress_gbps", "decompress_gbps", "copy_gbps", "read_gbps", "bits_per_element"]
        {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key}");
        }
    }
    assert_eq!(rows[0]["bits_per_element"], 32.0);
    assert!(bench.refused("bench --elements 0").contains("elements"));
}

#[test]
fn data_is_listed_and_checked() {
    let bench = Bench::with_images();
    let listed = bench.ok("data list");
    assert!(
        listed.contains("digits") && listed.contains("mnist") && listed.contains("GRADWIRE_DATA")
    );
    assert!(listed.contains(" movielens-100k         u.data\n"), "{listed}");
    assert!(bench.ok("data list --markdown").starts_with("| name |"));
    assert!(bench.refused("data --markdown list").contains("cannot be used with"));
    // These images are in MNIST's files, but they are not MNIST.
    let printed = bench.ok("data check images");
    assert!(printed.contains("96 training and 32 test images"), "{printed}");
    assert!(printed.contains("another data set in the format of mnist"), "{printed}");
    // A folder of this name should have the known files.
    bench.images("mnist");
    let output = bench.run("data check mnist");
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("differs from the known file"), "{printed}");
    assert!(bench.refused("data check nowhere").contains("nowhere"));
    bench.text("letters", "to be or not to be ", 10);
    let printed = bench.ok("data check letters");
    assert!(printed.contains("187 training and 3 test characters, 7 symbols"), "{printed}");
    assert!(printed.contains("not one of the data sets known"), "{printed}");
    // A known data set is found in the folder above it, and its file is another.
    std::fs::create_dir(bench.path("all")).unwrap();
    bench.text("all/tinyshakespeare", "to be or not to be ", 10);
    let output = bench.run("data check all");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("input.txt differ from the known files"), "{error}");
    let labels = bench.read("images/train-labels-idx1-ubyte");
    bench.write("images/train-labels-idx1-ubyte", &labels[..50]);
    assert!(bench.refused("data check images").contains("train-labels-idx1-ubyte"));
}

#[test]
fn bench_measures_tensors_of_the_user() {
    let bench = Bench::new();
    bench.floats("g.npy", &[0.5; 2000]);
    let line = "bench --quick --input g.npy --compressor none --compressor efsignsgd";
    let csv = bench.ok(&format!("{line} --csv"));
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap();
    let bits = head.iter().position(|name| *name == "bits_per_element").unwrap();
    let found: Vec<_> =
        rows.map(|row| (row[0], row[1], row[bits].parse::<f64>().unwrap())).collect();
    assert_eq!((found.len(), found[0]), (2, ("none", "2000", 32.0)));
    assert!((1.0..1.1).contains(&found[1].2), "{found:?}");
    assert!(head.contains(&"compress_spread"));
    let output = bench.command(line).env_remove("COLUMNS").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let line = "bench --quick --input - --compressor none";
    let piped = |line: &str| bench.piped(line, &bench.read("g.npy"));
    let rows: Value =
        serde_json::from_slice(&piped(&format!("{line} --format npy --json")).stdout).unwrap();
    assert_eq!(rows[0]["elements"], 2000);
    assert!(String::from_utf8_lossy(&piped(line).stderr).contains("give --format npy"));
    bench.npy("ids.npy", "<i8", 1, &[0; 8]);
    assert!(bench.refused("bench --input ids.npy").contains("type i64"));
}

#[test]
fn shells_and_man_get_their_files() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = bench.ok(&format!("completions {shell}"));
        assert!(script.contains("save-every") && script.contains("unpack"), "{shell}");
    }
    assert!(bench.ok("man").contains(".TH gradwire 1"));
    let page = bench.ok("man compare");
    assert!(
        page.contains(".TH gradwire\\-compare 1") || page.contains(".TH gradwire-compare 1"),
        "{page}"
    );
    assert!(page.contains("baseline") && page.contains("Examples"), "{page}");
    assert!(bench.refused("man comprae").contains("did you mean"));
    bench.ok("man --out pages");
    assert!(
        bench.path("pages/gradwire.1").is_file() && bench.path("pages/gradwire-env.1").is_file()
    );
    if std::path::Path::new("/bin/bash").exists() {
        bench.write("complete.bash", bench.ok("completions bash").as_bytes());
        let checked = std::process::Command::new("bash")
            .args(["-n"])
            .arg(bench.path("complete.bash"))
            .output();
        assert!(checked.unwrap().status.success());
    }
}

#[test]
fn the_environment_is_described() {
    let bench = Bench::new();
    let found: Value = serde_json::from_str(&bench.ok("env --json")).unwrap();
    assert_eq!(found["compressors"], gradwire::registry::REGISTRY.len());
    for key in ["gradwire", "build", "system", "processor", "instructions"] {
        assert!(!found[key].as_str().unwrap().is_empty(), "{key}");
    }
    let output = bench.command("env").env("GRADWIRE_SIMD", "sse2").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("GRADWIRE_SIMD=sse2") && table.contains("digits"), "{table}");
}

#[test]
fn help_documents_the_exit_codes() {
    let bench = Bench::new();
    let help = bench.ok("--help");
    assert!(help.contains("Train and compare:\n  compare "), "{help}");
    assert!(bench.ok("compare --help").contains("Workers and their exchange:"));
    assert!(bench.ok("bench -h").contains("Examples:\n"));
    let verbs = "compare train bench reproduce list compress decompress inspect data";
    for verb in verbs.split(' ') {
        assert!(help.contains(verb), "{verb}");
    }
    assert!(help.contains("130"));
    assert!(bench.ok("--version").starts_with("gradwire "));
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_error() {
    let line = format!("{} list --json | head -c 1", env!("CARGO_BIN_EXE_gradwire"));
    let script = format!("set -o pipefail; {line}");
    let output =
        std::process::Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.is_empty(), "{error}");
    assert_eq!(output.status.code(), Some(0));
}
