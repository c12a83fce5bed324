//! Without compression every strategy computes the mean, to the bit where its order of operations
//! is known; with error feedback nothing is lost.

use crate::common::checks::{mean_is_naive, mean_of, uncompressed_means_are_naive};
use crate::common::engine::Threads;
use crate::common::{RATE, Run, SIZES, bits, gradients, suits, zeros};
use gradwire::State;
use gradwire_exchange::StepInput;

const STRATEGIES: [&str; 8] = [
    "all-reduce",
    "all-gather",
    "scatter-reduce",
    "sparse-all-reduce",
    "hierarchical",
    "hierarchical:node=3",
    "server",
    "server:servers=2",
];

#[test]
fn uncompressed_means_are_those_of_a_naive_loop() {
    for name in STRATEGIES {
        uncompressed_means_are_naive(&mut Threads, name, mean_of(name));
    }
}

#[test]
fn any_number_of_ranks_averages_tensors_of_any_size() {
    let large = (1 << 20) + 3;
    for name in &STRATEGIES[..6] {
        for workers in 1..=9 {
            for size in [0, 1, 5, 8, 9] {
                mean_is_naive(&mut Threads, name, workers, &[size], mean_of(name));
            }
        }
        for workers in [3, 9] {
            mean_is_naive(&mut Threads, name, workers, &[large], mean_of(name));
        }
    }
}

/// The residuals under `prefix` as whole tensors; a slice's name ends in its range.
fn residuals(run: &Run, state: &State, prefix: &str) -> Vec<Vec<f32>> {
    let mut all = zeros(&run.tensors);
    for (name, residual) in state.floats_under(prefix) {
        let (whole, start) = match name.split_once('[') {
            Some((whole, range)) => (whole, range.split_once("..").unwrap().0.parse().unwrap()),
            None => (name, 0),
        };
        let index = run.tensors.iter().position(|tensor| tensor.name() == whole).unwrap();
        all[index][start..start + residual.len()].copy_from_slice(residual);
    }
    all
}

fn add(sum: &mut [Vec<f32>], values: &[Vec<f32>], weight: f32) {
    for (sum, values) in sum.iter_mut().flatten().zip(values.iter().flatten()) {
        *sum += weight * values;
    }
}

#[test]
fn with_error_feedback_what_was_applied_and_what_is_kept_are_all_there_was() {
    let rounds = ["powersgd", "gradzip:rank=2", "gradiveq:slice=8,keep=2", "sketched-sgd"];
    let others = [
        "3lc",
        "3lc:s=1.75",
        "onebit",
        "topk",
        "int8",
        "randomk",
        "randomk:indices=independent",
        "terngrad:ef=on",
    ];
    for name in STRATEGIES {
        for text in others.into_iter().chain(rounds) {
            if !suits(name, &text.parse().unwrap()) {
                continue;
            }
            let run = Run::of(name, 3, text, &SIZES);
            let steps = if text.starts_with("terngrad") { 1 } else { 5 };
            let ranks = run.steps(steps);
            // parameters = initial − rate · mean of (gradients − worker residuals) + kept by
            // others.
            let mut expected = run.initial.clone();
            for (rank, end) in ranks.iter().enumerate() {
                for step in 0..steps {
                    add(&mut expected, &gradients(&run.tensors, rank, step), -RATE / 3.0);
                }
                let kept = residuals(&run, &end.state, "push/residual/");
                // In a hierarchy leaders keep what their nodes' messages leave out.
                let counts = match name {
                    "hierarchical" => [2.0, 0.0, 1.0],
                    "hierarchical:node=3" => [3.0, 0.0, 0.0],
                    _ => [1.0; 3],
                };
                let keeps = kept.iter().flatten().any(|&x| x != 0.0);
                assert_eq!(keeps, counts[rank] > 0.0, "{name}, {text}: {rank} keeps something");
                add(&mut expected, &kept, RATE * counts[rank] / 3.0);
                add(&mut expected, &residuals(&run, &end.state, "reduce/residual/"), RATE);
            }
            if let Some(global) = &ranks[0].global {
                assert_close(name, text, global, &expected);
            }
            for server in 0..run.exchange.servers() {
                let prefix = format!("server{server}/pull/residual/");
                add(&mut expected, &residuals(&run, &ranks[0].state, &prefix), -1.0);
            }
            assert_close(name, text, &ranks[0].parameters, &expected);
        }
    }
}

fn assert_close(name: &str, text: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    for (at, (a, b)) in found.iter().flatten().zip(expected.iter().flatten()).enumerate() {
        assert!((a - b).abs() < 1e-4, "{name}, {text}: element {at} is {a} where {b} is due");
    }
}

#[test]
fn a_server_keeps_the_full_precision_model() {
    let run = Run::of("server:servers=2", 2, "3lc:s=1.9", &SIZES);
    let ranks = run.steps(2);
    let global = ranks[0].global.as_ref().unwrap();
    assert!(bits(global) != bits(&ranks[0].parameters));
    for (index, tensor) in run.tensors.iter().enumerate() {
        if run.policy.is_raw(tensor) {
            let drift = global[index].iter().zip(&ranks[0].parameters[index]);
            assert!(drift.clone().all(|(a, b)| (a - b).abs() <= 1e-6), "{}", tensor.name());
        }
    }
}

#[test]
fn what_others_send_back_has_no_momentum_of_its_own() {
    for text in ["dgc", "sgc"] {
        let run = Run::of("server", 3, text, &SIZES);
        let ranks = run.steps(5);
        let mut expected = ranks[0].global.clone().unwrap();
        let kept = residuals(&run, &ranks[0].state, "server0/pull/residual/");
        assert!(kept.iter().flatten().any(|&x| x != 0.0), "{text} keeps nothing");
        add(&mut expected, &kept, -1.0);
        assert_close("server", text, &ranks[0].parameters, &expected);
    }
    let run = Run::of("scatter-reduce", 3, "dgc", &SIZES);
    let state = &run.steps(5)[0].state;
    assert!(state.floats_under("push/velocity/").count() > 0);
    assert!(state.floats_under("reduce/residual/").count() > 0);
    assert_eq!(state.floats_under("reduce/velocity/").count(), 0);
}

#[test]
fn in_a_hierarchy_nodes_vote_not_ranks() {
    for (name, vote) in [("all-gather", 1.0), ("hierarchical:node=3", -1.0)] {
        let run = Run::of(name, 4, "signsgd", &[5]);
        let results = run.each(|rank, exchange| {
            let mut parameters = zeros(&run.tensors);
            // The mean of the first three is −1, though two of them, and the fourth, say +.
            let gradient = [1.0, 1.0, -5.0, 1.0][rank];
            exchange.step(StepInput::new(0, RATE, &[vec![gradient; 5]]), &mut parameters).unwrap();
            parameters
        });
        for end in results {
            assert_eq!(end, [[-RATE * vote; 5]], "{name}");
        }
    }
}
