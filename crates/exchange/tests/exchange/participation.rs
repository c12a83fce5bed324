//! Rounds in which workers have different weights, or only some take part.

use crate::common::checks::naive;
use crate::common::{RATE, Run, SIZES, bits, exchange, gradients, suits, zeros};
use gradwire::Spec;
use gradwire_exchange::{ExchangeError, Participation, StepInput};

const STEPS: u64 = 4;
const STRATEGIES: [&str; 5] =
    ["all-reduce", "all-gather", "scatter-reduce", "server", "server:servers=2"];

fn run(name: &str, spec: &str, participation: Participation) -> Run {
    let spec: Spec = spec.parse().unwrap();
    Run { participation, ..Run::new(exchange(name), 3, &spec, &SIZES) }
}

/// The sum of the values of all ranks times their weights, without those of weight 0.
fn weighted(weights: &[f32], values: &[f32]) -> f32 {
    let taking = weights.iter().zip(values).filter(|(weight, _)| **weight > 0.0);
    taking.fold(0.0, |sum, (weight, value)| sum + weight * value)
}

#[test]
fn means_are_weighted() {
    for name in STRATEGIES {
        let run = run(name, "none", Participation::weighted(vec![1.0, 4.0, 3.0]));
        let expected = naive(&run, STEPS, |_, values| weighted(&[0.125, 0.5, 0.375], values));
        for end in run.steps(STEPS) {
            assert!(bits(&end.parameters) == bits(&expected), "{name}");
        }
    }
}

#[test]
fn sums_in_another_order_have_the_same_weights() {
    for (name, spec) in [
        ("sparse-all-reduce", "threshold:v=0"),
        ("hierarchical:node=2", "none"),
        ("server:stale=0", "none"),
    ] {
        let mut run = run(name, spec, Participation::weighted(vec![1.0, 4.0, 3.0]));
        run.initial = zeros(&run.tensors);
        let ends = run.each(|rank, exchange| {
            let (mut parameters, mut gradients) = (run.initial.clone(), run.initial.clone());
            let own = [8.0, 16.0, -8.0][rank];
            gradients.iter_mut().for_each(|gradient| gradient.fill(own));
            exchange.step(StepInput::new(0, RATE, &gradients), &mut parameters).unwrap();
            let global = if rank == 0 { exchange.global_model().unwrap() } else { None };
            [parameters, global.unwrap_or_default()].concat()
        });
        // The mean is 8/8 + 16/2 − 8·3/8 = 6.
        for w in ends.concat().concat() {
            assert!((w + 6.0 * RATE).abs() < 1e-6, "{name}: {w}");
        }
    }
}

#[test]
fn who_is_absent_sends_nothing_and_receives_everything() {
    let participation = Participation::equal(3).with_participants(2, 0.0, 11);
    let parts = |step| -> Vec<f32> {
        (0..3).map(|rank| if participation.takes_part(rank, step) { 0.5 } else { 0.0 }).collect()
    };
    for name in &STRATEGIES[1..] {
        let run = run(name, "none", participation.clone());
        let weights: Vec<_> = (0..STEPS).map(parts).collect();
        let expected = naive(&run, STEPS, |step, values| weighted(&weights[step as usize], values));
        for (rank, end) in run.steps(STEPS).into_iter().enumerate() {
            assert!(bits(&end.parameters) == bits(&expected), "{name}");
            for (report, step) in end.reports.iter().zip(0..) {
                let model = 4 * run.tensors.iter().map(|t| t.elements()).sum::<usize>() as u64;
                assert!(report.traffic.bytes_down > model / 2, "{name}");
                let absent = !participation.takes_part(rank, step);
                // Scatter-reduce has every rank send its average.
                let own = if *name == "scatter-reduce" { model * 4 / 5 } else { 100 };
                assert_eq!(absent, report.traffic.bytes_up < own, "{name}, {:?}", report.traffic);
            }
        }
    }
}

#[test]
fn absent_workers_end_with_the_same_bits_as_the_others() {
    let participation = Participation::weighted(vec![1.0, 2.0, 3.0]).with_participants(2, 0.5, 3);
    for name in STRATEGIES[1..].iter().chain(&["sparse-all-reduce", "hierarchical"]) {
        for spec in ["3lc", "topk", "terngrad"] {
            if !suits(name, &spec.parse().unwrap()) {
                continue;
            }
            let ends = run(name, spec, participation.clone()).steps(12);
            for end in &ends[1..] {
                assert!(bits(&end.parameters) == bits(&ends[0].parameters), "{name}, {spec}");
            }
        }
    }
}

#[test]
fn ranks_know_which_elements_they_sent() {
    let participation = Participation::equal(3).with_participants(2, 0.0, 11);
    for name in &STRATEGIES[1..] {
        let run = run(name, "topk:ratio=0.01,ef=off", participation.clone());
        run.each(|rank, exchange| {
            let mut parameters = run.initial.clone();
            for step in 0..STEPS {
                let gradients = gradients(&run.tensors, rank, step);
                run.step(rank, step, exchange, &mut parameters);
                for (index, tensor) in run.tensors.iter().enumerate() {
                    let (sent, takes_part) =
                        (exchange.sent(index), participation.takes_part(rank, step));
                    if !takes_part {
                        assert_eq!(sent, Some(&[][..]), "{name}");
                    } else if tensor.elements() < 5 {
                        assert_eq!(sent, None, "{name}");
                    } else {
                        let sent = sent.unwrap();
                        let least = sent.iter().map(|&at| gradients[index][at as usize].abs());
                        let least = least.fold(f32::INFINITY, f32::min);
                        let ratio = sent.len() as f64 / tensor.elements() as f64;
                        assert!(sent.is_sorted_by(|a, b| a < b) && !sent.is_empty());
                        if tensor.elements() > 1000 {
                            assert!((ratio - 0.01).abs() < 0.002 && least > 0.95, "{name} {ratio}");
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn a_leader_that_is_absent_has_sent_nothing_of_its_own() {
    let participation = Participation::equal(3).with_participants(1, 0.0, 11);
    let run = run("hierarchical:node=3", "topk:ratio=0.01,ef=off", participation.clone());
    let rounds: Vec<bool> = (0..12).map(|step| participation.takes_part(0, step)).collect();
    assert!(rounds.contains(&true) && rounds.contains(&false));
    run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        for (step, takes_part) in rounds.iter().enumerate() {
            run.step(rank, step as u64, exchange, &mut parameters);
            let nothing = |index| exchange.sent(index).is_some_and(<[u32]>::is_empty);
            // Members send all elements.
            assert!(rank > 0 || (0..SIZES.len()).all(nothing) != *takes_part, "{step}");
        }
    });
}

#[test]
fn what_needs_everyone_refuses_partial_rounds() {
    let refused =
        |name: &str, participation| match run(name, "none", participation).setup().validate() {
            Err(ExchangeError::Config(reason)) => reason,
            other => panic!("{other:?}"),
        };
    let some = Participation::equal(3).with_participants(2, 0.0, 0);
    assert!(refused("all-reduce", some.clone()).contains("all-gather"));
    assert!(refused("server:backup=1", some).contains("backup=0"));
}

#[test]
fn integers_are_added_only_with_equal_weights() {
    let weights = Participation::weighted(vec![1.0, 4.0, 3.0]);
    match run("all-reduce", "thc", weights.clone()).setup().validate() {
        Err(ExchangeError::Config(reason)) => assert!(reason.contains("adds integers"), "{reason}"),
        other => panic!("{other:?}"),
    }
    run("all-gather", "thc", weights).setup().validate().unwrap();
    run("all-reduce", "thc", Participation::equal(3)).setup().validate().unwrap();
}
