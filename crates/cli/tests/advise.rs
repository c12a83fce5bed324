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
        (&format!("advise 0/g.npy {rest} --optimizer sdg"), "give one of sgd, momentum"),
        ("advise 0/g.npy --ranks 1 --step-ms 9 --link 1mbit", "1 is not in 2..=65536"),
    ]);
}
