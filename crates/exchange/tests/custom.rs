//! Compressors in no registry, with memories and aggregations of their own.

mod common;

use std::ops::Range;

use common::custom::{median, momenta, plain, roll};
use common::{RATE, Run, exchange, gradients, zeros};
use gradwire::{Decoder, Encoder, Floats, Spec, Tensor};
use gradwire_exchange::{DistributedOptimizer, Exchange, Model, Participation, Policy};

/// Of these the second is raw.
const SIZES: [usize; 3] = [7, 3, 12];

/// The rank whose gradients are far off.
const OUTLIER: usize = 1;

/// From zeros, so that servers compute exact changes.
fn run(name: &str, workers: usize, spec: &Spec) -> Run {
    let mut run = Run::new(exchange(name), workers, spec, &SIZES);
    run.initial = zeros(&run.tensors);
    run
}

/// Whether the outlier is far above the others at an element.
fn above(element: usize) -> bool {
    element.is_multiple_of(2)
}

/// Element i of rank r is i + r, and all of a raw tensor r; but for the outlier.
fn given(tensors: &[Tensor], rank: usize) -> Vec<Vec<f32>> {
    let value = |tensor: &Tensor, element: usize| match tensor.elements() {
        3 => rank as f32,
        _ if rank != OUTLIER => (element + rank) as f32,
        _ if above(element) => 1e30,
        _ => -1e30,
    };
    let gradient = |tensor: &Tensor| (0..tensor.elements()).map(|i| value(tensor, i)).collect();
    tensors.iter().map(gradient).collect()
}

/// What every worker holds after steps with the same gradients.
fn trained(run: &Run, steps: Range<u64>) -> Vec<Vec<Vec<f32>>> {
    let (results, servers) = run.workers(|rank, exchange: &mut dyn DistributedOptimizer| {
        let (gradients, mut parameters) = (given(&run.tensors, rank), run.initial.clone());
        for step in steps.clone() {
            exchange.step(step, RATE, &gradients, &mut parameters).unwrap();
        }
        exchange.check(steps.end, &parameters).unwrap();
        parameters
    });
    servers.unwrap();
    results.into_iter().map(Result::unwrap).collect()
}

/// Checks two steps.
fn expect_median(run: &Run, first: u64, case: &str) {
    // Of 0, 2 and the outlier; of 0, 2, 3, 4 and the outlier.
    let (low, high) = if run.workers == 3 { (0, 2) } else { (2, 3) };
    let part = 1.0 / run.workers as f32;
    let mean = (0..run.workers).fold(0.0, |sum, rank| sum + part * rank as f32);
    let ends = trained(run, first..first + 2);
    for (rank, parameters) in ends.iter().enumerate() {
        for (tensor, values) in run.tensors.iter().zip(parameters) {
            for (element, &found) in values.iter().enumerate() {
                let step = match tensor.elements() {
                    3 => mean,
                    _ if above(element) => (element + high) as f32,
                    _ => (element + low) as f32,
                };
                assert_eq!(found, -2.0 * RATE * step, "{case}, rank {rank}, {tensor:?}");
            }
        }
    }
    assert_eq!(ends.len(), run.workers);
}

#[test]
fn a_median_ignores_an_outlier() {
    let names = ["all-gather", "scatter-reduce", "hierarchical:node=1", "server"];
    for name in names.into_iter().chain(["server:servers=2"]) {
        for workers in [3, 5] {
            let mut run = run(name, workers, &median());
            expect_median(&run, 0, name);
            if matches!(run.exchange, Exchange::AllGather | Exchange::ScatterReduce) {
                run.groups = Some(vec![vec![2], vec![1, 0]]);
                expect_median(&run, 0, name);
            }
        }
    }
}

#[test]
fn a_median_serves_by_a_rule_or_from_a_step_on() {
    for name in ["all-gather", "scatter-reduce", "server"] {
        let mut ruled = run(name, 3, &"none".parse().unwrap());
        ruled.policy.rules = vec!["t0.* -> none".parse().unwrap(), ">=10 -> none".parse().unwrap()];
        ruled.policy.rules.iter_mut().for_each(|rule| rule.spec = median());
        expect_median(&ruled, 0, name);
        let mut late = run(name, 3, &"none".parse().unwrap());
        late.policy.later = vec![(4, median())];
        assert!(trained(&late, 3..4)[0][0][0] < -1e20, "{name} takes the mean until then");
        expect_median(&late, 4, name);
    }
}

#[test]
fn who_is_absent_has_no_row_and_the_others_have_their_weights() {
    let shares = Participation::weighted(vec![1.0, 2.0, 3.0, 2.0]).with_participants(3, 0.25, 5);
    let mut counts = [0; 4];
    for name in ["all-gather", "scatter-reduce", "server"] {
        for step in 0..12 {
            let run = Run { shares: shares.clone(), ..run(name, 4, &roll()) };
            let (results, servers) = run.workers(|rank, exchange| {
                let mut parameters = run.initial.clone();
                let mut gradients = run.initial.clone();
                gradients.iter_mut().for_each(|gradient| gradient.fill(rank as f32 + 1.0));
                exchange.step(step, RATE, &gradients, &mut parameters).unwrap();
                parameters
            });
            servers.unwrap();
            let mut parts = Vec::new();
            shares.of_round(step, &mut parts);
            let present = parts.iter().enumerate().filter(|(_, part)| **part > 0.0);
            counts[present.clone().count()] += 1;
            let tell =
                |sum: f32, (rank, part): (usize, &f32)| 8.0 * sum + (rank as f32 + 1.0 + part);
            let expected = -RATE * present.fold(0.0, tell);
            for end in results {
                let end = end.unwrap();
                assert!(end[0].iter().chain(&end[2]).all(|x| *x == expected), "{name}, {step}");
            }
        }
    }
    assert!(counts[0] == 0 && counts[2] > 0 && counts[3] > 0, "{counts:?}");
}

#[test]
fn a_median_is_refused_where_nobody_has_all_gradients() {
    for (name, why) in [
        ("all-reduce", "adds messages"),
        ("sparse-all-reduce", "adds messages"),
        ("hierarchical", "a node first"),
        ("hierarchical:node=3", "a node first"),
        ("server:mode=async", "every push alone"),
        ("server:stale=0", "every push alone"),
    ] {
        let mut run = run(name, 3, &median());
        for _ in ["of all tensors", "of some"] {
            let message = run.setup().validate().unwrap_err().to_string();
            for part in ["'median'", why, name, "all-gather, scatter-reduce or server"] {
                assert!(message.contains(part), "{message}");
            }
            run.policy.push = "none".parse().unwrap();
            run.policy.rules = vec!["t0.* -> none".parse().unwrap()];
            run.policy.rules[0].spec = median();
        }
    }
    assert_eq!(Model::suitable(&Policy::new(&median()), 3), Exchange::AllGather);
    for (_, spec) in plain() {
        assert_eq!(Model::suitable(&Policy::new(&spec), 3), Exchange::AllGather, "{spec}");
    }
    let without = "powersgd".parse().unwrap();
    assert_eq!(Model::suitable(&Policy::new(&without), 3), Exchange::AllReduce);
}

#[test]
fn all_reduce_refuses_rounds_with_a_memory_of_their_own() {
    let (_, powersgd) = plain().pop().unwrap();
    let refused = run("all-reduce", 3, &powersgd).setup().validate().unwrap_err().to_string();
    assert!(refused.contains("'powersgd'") && refused.contains("do not add"), "{refused}");
    run("all-gather", 3, &powersgd).setup().validate().unwrap();
    let off = powersgd.with_memory(gradwire::Memory::None);
    run("all-reduce", 3, &off).setup().validate().unwrap();
}

#[test]
fn workers_have_memories_of_their_own_and_owners_and_servers_plain_ones() {
    for spec in momenta() {
        for (name, second, factor) in [
            ("scatter-reduce", "reduce/residual/t0.weight", -RATE),
            ("server", "server0/pull/residual/t0.weight", 1.0),
        ] {
            let run = Run::new(exchange(name), 1, &spec, &[1000]);
            let end = run.steps(3).remove(0);
            // What a worker pushes; a single one owns all slices.
            let (mut worker, mut receiver) = (Encoder::new(&spec, 7, 0), Decoder::new(&spec, 7));
            let (tensor, mut pushed) = (&run.tensors[0], vec![0.0; 1000]);
            for step in 0..3 {
                let (gradient, mut message) = (gradients(&run.tensors, 0, step), Vec::new());
                worker.encode(tensor, step, Floats::F32(&gradient[0]), &mut message).unwrap();
                receiver.decode_add(tensor, step, 0, &message, 1.0, &mut pushed).unwrap();
            }
            let kept = end.state.floats("push/residual/t0.weight").unwrap();
            assert_eq!(kept, worker.residual("t0.weight").unwrap(), "{name}, {spec}");
            // Of that nothing is lost or said twice on the way back.
            let left = end.state.floats(second).unwrap();
            for (at, &found) in end.parameters[0].iter().enumerate() {
                let expected = run.initial[0][at] - RATE * pushed[at] - factor * left[at];
                assert!((found - expected).abs() < 1e-5, "{name}, {spec}: {found} for {expected}");
            }
        }
    }
}
