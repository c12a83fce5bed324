//! Small committed runs repeat bit by bit, and the committed marks are those of this source.
//!
//! With `GRADWIRE_WRITE_RUNS=1`, which `cargo xtask runs` sets, all are made anew.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use gradwire_models::data::{Dataset, embedded};
use gradwire_testbed::check::{Verdict, check, find, standing, summary, table};
use gradwire_testbed::engine::{Engine, Threads};
use gradwire_testbed::files::write_atomic;
use gradwire_testbed::results;
use gradwire_testbed::runner::Progress;
use gradwire_train::settings::{Setting, TrainingSettings};
use gradwire_train::{Observer, RunConfig, RunOptions, RunRecord, marks};

/// Values of settings, by name.
type Further = &'static [(&'static str, &'static str)];

/// Compressor, model, optimizer, exchange, and further settings.
const RUNS: [(&str, &str, &str, &str, Further); 10] = [
    ("none", "mlp", "sgd", "server", &[("l1", "0.0001")]),
    ("topk", "lenet5", "momentum", "all-gather", &[("raw_below", "0"), ("raw_vectors", "off")]),
    ("3lc:s=1.75", "lenet5:relu", "nesterov", "server:servers=2", &[]),
    ("powersgd", "mlp", "adam", "all-reduce", &[]),
    ("qsgd", "mlp:100,tanh", "adamw", "scatter-reduce", &[]),
    ("topk:ratio=0.05", "mlp:64-32,tanh", "rmsprop", "sparse-all-reduce", &[]),
    ("int8", "mlp", "adagrad", "hierarchical:node=2", &[("split", "dirichlet")]),
    ("eden", "mlp", "muon", "all-gather", &[("participation", "0.5")]),
    ("sbc:every=4", "mlp", "momentum", "all-gather", &[("send", "updates"), ("outer", "nesterov")]),
    (
        "none until 0.5 then onebit",
        "lenet5",
        "momentum",
        "all-gather",
        &[("clip", "0.5"), ("augment", "on")],
    ),
];

/// Models with all operations, but not the largest, which take long.
const MODELS: [&str; 11] = [
    "mlp",
    "lenet5",
    "lenet5:relu",
    "cifar-cnn",
    "resnet8",
    "densenet40",
    "unet:4",
    "gpt:layers=2,heads=2,width=32,context=32",
    "charlstm",
    "wordlstm:hidden=100",
    "ncf",
];
const OPTIMIZERS: [&str; 8] =
    ["sgd", "momentum", "nesterov", "adam", "adamw", "muon", "rmsprop", "adagrad"];
const EXCHANGES: [&str; 6] = [
    "server",
    "all-reduce",
    "all-gather",
    "scatter-reduce",
    "sparse-all-reduce",
    "hierarchical:node=2",
];

const WRITES: &str = "GRADWIRE_WRITE_RUNS";
const REMEDY: &str = "if the change of bits is wanted, say so in CHANGELOG.md, run cargo xtask runs, and commit what it writes";

struct Quiet;

impl Observer for Quiet {}

impl Progress for Quiet {
    fn started(&self, _: usize, _: usize, _: &RunConfig) {}

    fn finished(&self, _: &RunRecord) {}

    fn note(&self, _: &str) {}
}

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results")
}

fn config(row: usize, data: &Arc<Dataset>) -> RunConfig {
    let (compressor, model, optimizer, exchange, further) = RUNS[row];
    let mut settings = TrainingSettings::default();
    let own = [("steps", "12"), ("batch", "8"), ("evaluate_at_most", "100")];
    let named = [("model", model), ("optimizer", optimizer), ("exchange", exchange)];
    for (name, value) in own.into_iter().chain(named).chain(further.iter().copied()) {
        Setting::named(name).unwrap().set(&mut settings, &[value]).unwrap();
    }
    RunConfig::new(settings, Arc::clone(data), compressor.parse().unwrap())
}

/// Makes the runs, and writes them where they are committed.
fn write_runs(folder: &Path) {
    let data = Arc::new(embedded(0));
    let run = |row| {
        let record = Threads.run(&config(row, &data), &(), &RunOptions::default()).unwrap();
        results::compact(&record.unwrap(), 3)
    };
    let runs: Vec<RunRecord> = (0..RUNS.len()).map(run).collect();
    results::write(&folder.join("runs.jsonl"), &runs).unwrap();
}

fn page() -> String {
    let about = "# Marks\n\nWhat made the runs of each folder, by the [marks](../docs/experiments.md#marks) of their records. Where a\n\
                 part is another than that of this source, quality is comparable, and digests are not. Runs before marks\n\
                 recorded none; `gradwire reproduce --check` says whether they repeat. `cargo xtask runs` writes this page.\n\n";
    about.to_owned() + standing(&results()).unwrap().markdown().trim_end() + "\n"
}

/// The marks of every model, optimizer, exchange and compressor, a line each.
fn all_marks() -> String {
    let lines = |setting: &'static str, names: &'static [&str], compressor: &'static str| {
        names.iter().map(move |name| line(setting, name, compressor))
    };
    let compressors = gradwire::registry::REGISTRY.iter().map(|entry| {
        let base = TrainingSettings { model: known("mlp"), ..TrainingSettings::default() };
        let all = marks(&base, &known(entry.id));
        format!("compressor {}: {} {}\n", entry.id, all["compressor"], all["wire format"])
    });
    let others = lines("model", &MODELS, "none")
        .chain(lines("optimizer", &OPTIMIZERS, "none"))
        .chain(lines("exchange", &EXCHANGES, "topk"));
    others.chain(compressors).collect()
}

/// The mark of the part that is called like a setting, where the setting has this value.
fn line(setting: &str, value: &str, compressor: &str) -> String {
    let compressor = if value == "all-reduce" { "none" } else { compressor };
    let mut settings = TrainingSettings { model: known("mlp"), ..TrainingSettings::default() };
    Setting::named(setting).unwrap().set(&mut settings, &[value]).unwrap();
    format!("{setting} {value}: {}\n", marks(&settings, &known(compressor))[setting])
}

fn known<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

#[test]
fn the_marks_of_all_parts_are_those_of_the_last_wanted_change() {
    let path = results().join("check/marks.txt");
    let now = all_marks();
    if std::env::var_os(WRITES).is_some() {
        write_atomic(&path, now.as_bytes()).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> =
        now.lines().filter(|line| !before.lines().any(|of| of == *line)).collect();
    assert!(before == now, "other bits of\n{}\n{REMEDY}", changed.join("\n"));
}

#[test]
fn committed_runs_repeat_and_the_page_of_marks_is_up_to_date() {
    let (folder, path) = (results().join("check"), results().join("marks.md"));
    if std::env::var_os(WRITES).is_some() {
        write_runs(&folder);
        write_atomic(&path, page().as_bytes()).unwrap();
    }
    let runs = find(&folder).unwrap().runs;
    let specs: Vec<&str> = runs.iter().map(|run| run.record.compressor.as_str()).collect();
    assert_eq!(specs, RUNS.map(|run| run.0), "{REMEDY}");
    let all = check(runs.clone(), None, None, &Threads, &Quiet).unwrap();
    let equal = all.iter().all(|one| one.verdict == Verdict::Identical);
    assert!(equal, "{}\n{}\n{REMEDY}", table(&all).terminal(usize::MAX), summary(&all));
    for run in &runs {
        let now = marks(&run.record.settings, &known(&run.record.compressor));
        assert_eq!(run.record.numerics, now, "{}: {REMEDY}", run.title());
    }
    // The first ten steps are compared by their digest.
    let first = check(runs[..1].to_vec(), None, Some(10), &Threads, &Quiet).unwrap();
    assert_eq!(first[0].verdict, Verdict::Identical);
    assert_ne!(first[0].before.digest, all[0].before.digest);
    let error = check(runs[..1].to_vec(), None, Some(11), &Threads, &Quiet).unwrap_err();
    assert!(error.to_string().contains("it has digests after 10"), "{error}");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page(), "results/marks.md is not that of this source; {REMEDY}");
}

#[test]
fn what_cannot_be_repeated_is_not_checked_and_changed_bits_are_explained() {
    let mut runs = vec![find(&results().join("check")).unwrap().runs.swap_remove(0); 5];
    runs[0].record.exchange = "server:mode=async".parse().unwrap();
    runs[1].record.data_checksum = "0".to_owned();
    runs[2].record.data = "no-such-data".to_owned();
    runs[3].record.digest = "0".repeat(16);
    runs[3].record.numerics.insert("model".to_owned(), "0".repeat(16));
    runs[4].record.digest = "0".repeat(16);
    runs[4].record.numerics.clear();
    runs[4].record.quality += 0.1;
    let all = check(runs, None, None, &Threads, &Quiet).unwrap();
    let says = [
        "not checked: with 'server:mode=async' workers do not wait",
        "not checked: the checksum of the data set 'digits' differs",
        "not checked: ",
        "same figures, other bits (other model)",
        "differs (no marks were recorded; made by 0.1.0",
    ];
    for (one, says) in all.iter().zip(says) {
        assert!(one.verdict.to_string().starts_with(says), "{}", one.verdict);
    }
    let expected = "0 identical, 0 with other bytes, 1 with the same figures but other bits, 1 that differ, 3 not checked.";
    assert_eq!(summary(&all), expected);
}
