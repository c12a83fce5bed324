//! `gradwire advise`.

mod support;

use serde_json::Value;
use support::Bench;

/// Two steps of the gradient of a tensor with 40 000 elements.
fn bench() -> Bench {
    let bench = Bench::new();
    for step in 0..2 {
        let value = |at: u32| (at.wrapping_mul(2_654_435_761) >> (8 + step)) as f32 / 1e6 - 8.0;
        bench.floats(&format!("step{step}.npy"), &(0..40_000).map(value).collect::<Vec<_>>());
        // The tensor has the name of its file.
        std::fs::create_dir(bench.path(&format!("{step}"))).unwrap();
        std::fs::rename(
            bench.path(&format!("step{step}.npy")),
            bench.path(&format!("{step}/g.npy")),
        )
        .unwrap();
    }
    bench
}

#[test]
fn a_slow_link_calls_for_compression_and_a_fast_one_for_none() {
    let bench = bench();
    let line = "advise 0/g.npy 1/g.npy --ranks 2 --step-ms 100 --link 1mbit --link 1000gbit --compressor int8";
    let text = bench.ok(line);
    assert!(text.contains("At 1000 Gbit/s: do not compress"), "{text}");
    let advice: Value = serde_json::from_str(&bench.ok(&format!("{line} --json"))).unwrap();
    let advice = &advice[0];
    // 1.28 Mbit, and headers; two thirds of the step hide nothing of the only tensor.
    let seconds = advice["plain"]["on_links"][0]["seconds"].as_f64().unwrap();
    assert!((1.38..1.40).contains(&seconds), "{seconds}");
    assert_eq!((&advice["ranks"], &advice["elements"]), (&2.into(), &40_000.into()));
    assert_eq!(advice["recommended"][1], Value::Null);
    // A line for each candidate and link: in no form but as text is anything wrapped.
    let csv = bench.ok(&format!("{line} --csv"));
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let head = |name: &str| lines[0].iter().position(|one| *one == name).unwrap();
    let (candidate, mbit, best) = (head("candidate"), head("mbit"), head("recommended"));
    let cells = |at: usize| [lines[at][candidate], lines[at][mbit], lines[at][best]];
    let plain = advice["recommended"][0].is_null().to_string();
    assert_eq!(cells(1), ["no compression", "1.0", &plain]);
    assert_eq!((cells(2)[2], cells(3)[0], lines.len()), ("true", "int8", 5));
    let markdown = bench.ok(&format!("{line} --markdown"));
    assert!(markdown.contains("\n| compressor | exchange | sent per step |"), "{markdown}");
    let output = bench.command(line).env_remove("COLUMNS").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let piped = |line: &str| bench.piped(line, &bench.read("0/g.npy"));
    let line = line.replace("0/g.npy 1/g.npy", "-");
    assert!(piped(&format!("{line} --format npy")).status.success());
    assert!(String::from_utf8_lossy(&piped(&line).stderr).contains("give --format npy"));
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = bench();
    bench.floats("other.npy", &[0.0; 8]);
    let rest = "--ranks 2 --step-ms 100 --link 1mbit";
    bench.refuses(&[
        (&format!("advise 0/g.npy other.npy {rest}"), "give the gradients of one model"),
        (&format!("advise 0/g.npy {rest} --backward-ms 101"), "not part of a step of 100 ms"),
        ("advise 0/g.npy --ranks 2 --step-ms 0 --link 1mbit", "--step-ms is the time"),
        ("advise 0/g.npy --ranks 2 --step-ms 9 --link fast", "'fast' is not a link"),
        (
            &format!("advise 0/g.npy {rest} --optimizer adm"),
            "unknown optimizer (did you mean 'adam'",
        ),
        (
            "advise 0/g.npy --ranks 1 --step-ms 9 --link 1mbit",
            "give a whole number from 2 to 65536",
        ),
    ]);
}

#[test]
fn machines_of_several_ranks_get_a_plan_and_its_call() {
    let bench = bench();
    let nodes = "--nodes 16 --ranks-per-node 8 --step-ms 160";
    let text = bench.ok(&format!(
        "advise {nodes} --markdown --parameters 1.3e9 --between 10gbit/20us --between 100000gbit --compressor int8 --compressor bf16"
    ));
    assert!(
        text.contains("16 nodes of 8 ranks (H200), 1600 Gbit/s inside; 1300.000 million"),
        "{text}"
    );
    let call =
        "register(model, \"int8\", exchange=\"scatter-reduce\", transport=\"device\", nodes=16)";
    assert!(text.contains(call) && text.contains("At 100000 Gbit/s: do not compress"), "{text}");
    // A model and its messages from files.
    let line = format!("advise 0/g.npy 1/g.npy {nodes} --between 1mbit --compressor int8 --json");
    let advice: Value = serde_json::from_str(&bench.ok(&line)).unwrap();
    let advice = &advice[0];
    assert_eq!(
        (&advice["nodes"], &advice["ranks"], &advice["elements"]),
        (&16.into(), &128.into(), &40_000.into())
    );
    // 160 kB · 2 · 15/16 through each node's link.
    assert_eq!(advice["plain"]["bytes_up"], 300_000.0);
    assert_eq!(advice["plans"][0]["levels"], "two");
}

#[test]
fn a_preset_stands_beside_published_gains() {
    let text = bench().ok("advise --preset pcie --compressor int8");
    assert!(text.contains("1 machine of 8 ranks (RTX 3090); 335.000 million"), "{text}");
    for part in [
        "At 200 Gbit/s with 5µs latency: do not compress",
        "CGX",
        "up to 2 ×",
        "4.08 ×",
        "557 ms",
        "guess",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn machines_that_cannot_be_are_refused() {
    let bench = bench();
    let model = "--parameters 1e6 --step-ms 9";
    let refused = |rest: &str, says| (format!("advise {model} {rest}"), says);
    let all = [
        refused(
            "--nodes 0 --ranks-per-node 2 --between 1gbit",
            "give a whole number from 1 to 65536",
        ),
        refused("--nodes 2 --between 1gbit", "--ranks-per-node"),
        refused("--nodes 1 --ranks-per-node 1 --inside 1gbit", "a single rank exchanges nothing"),
        refused("--nodes 60000 --ranks-per-node 2 --between 1gbit", "more than 65536 ranks"),
        refused("--nodes 1 --ranks-per-node 2", "a single machine needs --inside"),
        refused(
            "--nodes 1 --ranks-per-node 2 --inside 1gbit --between 1gbit",
            "leave out --between",
        ),
        refused("--nodes 2 --ranks-per-node 2", "several machines need --between"),
        refused(
            "--nodes 2 --ranks-per-node 2 --inside 1gbit --inside 2gbit --between 1gbit",
            "give --inside once",
        ),
        refused("--nodes 2 --ranks-per-node 2 --between 1gbit --ranks 4", "cannot be used with"),
        refused(
            "--nodes 2 --ranks-per-node 2 --between 1gbit --compressor powersgd",
            "several rounds",
        ),
        (
            "advise --nodes 2 --ranks-per-node 2 --between 1gbit --step-ms 9 --parameters 0"
                .to_owned(),
            "from 1 to 1e12",
        ),
    ];
    let all: Vec<_> = all.iter().map(|(line, says)| (line.as_str(), *says)).collect();
    bench.refuses(&all);
}
