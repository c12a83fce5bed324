//! Rules that give some tensors another compressor.

use crate::common::{Run, bits, gradients, saved};
use gradwire::{Encoder, Floats, Spec, State};

const SIZES: [usize; 4] = [1023, 5000, 900, 3];

/// Three tensors by rules, of which one travels in rounds, and one raw.
fn run(name: &str, push: &str, rules: &[&str]) -> Run {
    let mut run = Run::of(name, 3, push, &SIZES);
    run.policy.rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    run
}

#[test]
fn each_tensor_travels_by_its_rule() {
    for (name, push, rules) in [
        ("all-gather", "topk", ["t0.* -> 3lc", "t1.* -> sbc:p=0.05"]),
        ("server", "onebit", ["t0.* -> topk", "t1.* -> terngrad"]),
        ("all-reduce", "powersgd:rank=2", ["t0.* -> bf16", "t1.* -> gradiveq:slice=8,keep=2"]),
    ] {
        let run = run(name, push, &rules);
        let specs: Vec<Spec> = [&rules[0][8..], &rules[1][8..], push, "none"]
            .iter()
            .map(|spec| spec.parse().unwrap())
            .collect();
        let ends = run.each(|rank, exchange| {
            let mut parameters = run.initial.clone();
            let gradients = gradients(&run.tensors, rank, 0);
            run.step(rank, 0, exchange, &mut parameters);
            for (index, tensor) in run.tensors.iter().enumerate() {
                // The first refresh is all-reduced uncompressed, followed by the basis.
                if specs[index].entry().id == "gradiveq" {
                    assert_eq!(exchange.message_bytes(index), 4 * (5000 + 2 * 8));
                    continue;
                }
                let (mut encoder, mut message) =
                    (Encoder::new(&specs[index], 7, rank as u32), Vec::new());
                encoder.encode(tensor, 0, Floats::F32(&gradients[index]), &mut message).unwrap();
                assert_eq!(exchange.message_bytes(index), message.len(), "{name}, {index}");
            }
            parameters
        });
        assert!(ends.iter().all(|end| bits(end) == bits(&ends[0])), "{name}");
    }
}

#[test]
fn residuals_of_rules_are_saved_and_restored() {
    for name in ["all-gather", "scatter-reduce", "hierarchical", "server"] {
        let run = run(name, "topk", &["t0.* -> 3lc", "matrices -> onebit"]);
        run.each(|rank, exchange| run.repeat(rank, (1, 2), exchange));
    }
}

#[test]
fn rules_that_change_places_leave_residuals_with_their_tensors() {
    let rules = ["t0.* -> topk:ratio=0.1", "t1.* -> topk:ratio=0.2"];
    let turned = [rules[1], rules[0]];
    for name in ["all-gather", "scatter-reduce", "server"] {
        let (before, after) = (run(name, "onebit", &rules), run(name, "onebit", &turned));
        let states: Vec<State> = before.steps(2).into_iter().map(|end| end.state).collect();
        // The same rules as before, or in another order: the same state comes back.
        for run in [&before, &after] {
            let ends = run.each(|rank, exchange| {
                exchange.restore(&states[rank]).unwrap();
                let again = saved(exchange);
                assert!(again == states[rank], "{name}, rank {rank}");
                let mut parameters = run.initial.clone();
                run.step(rank, 2, exchange, &mut parameters);
                bits(&parameters)
            });
            assert!(ends.iter().all(|end| *end == ends[0]), "{name}");
        }
    }
}

#[test]
fn a_residual_of_another_compressor_is_refused_by_tensor() {
    let before = run("all-gather", "onebit", &["t0.* -> topk:ratio=0.1"]);
    let states: Vec<State> = before.steps(1).into_iter().map(|end| end.state).collect();
    let after = run("all-gather", "onebit", &["t0.* -> 3lc"]);
    let ends = after.each(|rank, exchange| exchange.restore(&states[rank]).unwrap_err());
    for end in ends {
        let error = end.to_string();
        for part in ["tensor 't0.weight'", "topk:ratio=0.1", "3lc", "configure"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
