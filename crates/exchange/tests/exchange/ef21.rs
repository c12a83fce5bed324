//! EF21: in every exchange the result is the mean of the estimates that the ranks keep.

use std::slice::from_ref;

use crate::common::{Run, bits, connected, exchange, gradients, saved, suits, tensors};
use gradwire::{Spec, State};
use gradwire_exchange::{OnNonFinite, Policy, Reducer, ReducerConfig, reshard};

const SIZES: [usize; 3] = [1200, 40, 9000];
const STEPS: u64 = 4;

fn model(name: &str, text: &str) -> ReducerConfig {
    let mut policy = Policy::new(text.parse::<Spec>().unwrap());
    (policy.raw_vectors, policy.raw_below) = (false, 50);
    ReducerConfig {
        exchange: exchange(name),
        policy,
        tensors: tensors(&SIZES),
        seed: 3,
        on_non_finite: OnNonFinite::Refuse,
    }
}

/// Steps of one rank, all tensors in one group: the result of the last.
fn average(reducer: &mut Reducer, rank: usize, steps: std::ops::Range<u64>) -> Vec<f32> {
    let tensors = reducer.tensors().to_vec();
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
    let group = reducer.group_of(&names).unwrap();
    let mut values = Vec::new();
    for step in steps {
        values = gradients(&tensors, rank, step).concat();
        reducer.average(group, step, &mut values).unwrap();
    }
    values
}

/// The mean of the estimates in the states of all ranks, with what owners of slices still keep
/// back.
fn mean_estimate(states: &[State], name: &str) -> Vec<f32> {
    let one = reshard(states, 0, 1);
    one.floats(&format!("push/residual/{name}")).unwrap().to_vec()
}

fn near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-5, "{what}, element {at}: {found} for {expected}");
    }
}

#[test]
fn the_result_is_the_mean_of_the_estimates() {
    for (name, text) in [
        ("all-gather", "topk:ratio=0.1,ef=ef21"),
        ("all-gather", "3lc:ef=ef21,momentum=0.9"),
        ("all-gather", "gradiveq:refresh=1,ef=ef21"),
        ("all-reduce", "randomk:ratio=0.1,ef=ef21"),
        ("all-gather", "fp16:ef=ef21"),
        ("scatter-reduce", "topk:ratio=0.1,ef=ef21"),
        ("scatter-reduce", "onebit:ef=ef21,momentum=0.5"),
    ] {
        let ends = connected(3, |rank, transport| {
            let mut reducer = Reducer::new(Box::new(transport), model(name, text)).unwrap();
            (average(&mut reducer, rank, 0..STEPS), reducer.save_all().unwrap())
        });
        let (result, states) = &ends[0];
        let same = |(other, _): &(Vec<f32>, _)| bits(from_ref(other)) == bits(from_ref(result));
        assert!(ends.iter().all(same), "{name}, {text}: ranks differ");
        let mut start = 0;
        for (at, tensor) in tensors(&SIZES).iter().enumerate() {
            let result = &result[start..start + tensor.elements()];
            start += tensor.elements();
            // The smallest is sent uncompressed.
            if at != 1 {
                let what = format!("{name}, {text}, {}", tensor.name());
                near(result, &mean_estimate(states, tensor.name()), &what);
            }
        }
    }
}

#[test]
fn estimates_and_their_mean_agree_after_a_change_of_ranks() {
    for (name, before, after) in [
        ("all-gather", 3, 2),
        ("all-gather", 2, 4),
        ("scatter-reduce", 3, 2),
        ("scatter-reduce", 2, 3),
    ] {
        let text = "topk:ratio=0.1,ef=ef21,momentum=0.5";
        let mut states = connected(before, |rank, transport| {
            let mut reducer = Reducer::new(Box::new(transport), model(name, text)).unwrap();
            average(&mut reducer, rank, 0..STEPS);
            reducer.save_all().unwrap()
        });
        let states = states.remove(0);
        let ends = connected(after, |rank, transport| {
            let mut reducer = Reducer::new(Box::new(transport), model(name, text)).unwrap();
            reducer.restore(states.clone()).unwrap();
            (average(&mut reducer, rank, STEPS..2 * STEPS), reducer.save_all().unwrap())
        });
        for (result, states) in &ends {
            let what = format!("{name}, {before} to {after}");
            near(&result[..1200], &mean_estimate(states, "t0.weight"), &what);
        }
    }
}

#[test]
fn a_rank_that_is_gone_takes_its_estimate_with_it() {
    let errors = connected(2, |_, transport| {
        let config = model("all-gather", "topk:ratio=0.1,ef=ef21");
        let mut reducer = Reducer::new(Box::new(transport), config).unwrap();
        let state = reducer.save();
        reducer.adopt(&state).unwrap_err().to_string()
    });
    assert!(errors[0].contains("ranks that are gone; use ef=on"), "{}", errors[0]);
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    connected(2, |rank, transport| {
        let config = model("scatter-reduce", "topk:ratio=0.1,ef=ef21");
        let mut reducer = Reducer::new(Box::new(transport), config).unwrap();
        average(&mut reducer, rank, 0..1);
        let early = reducer.save();
        average(&mut reducer, rank, 1..STEPS);
        let kept = reducer.save();
        let damaged = |change: &dyn Fn(&mut State)| {
            let mut state = early.clone();
            change(&mut state);
            state
        };
        for state in [
            damaged(&|state| state.set_floats("push/sum/t0.weight", vec![1.0])),
            damaged(&|state| state.set_setting("reduce/spec/t0.weight[0..600]", "3lc".to_owned())),
        ] {
            reducer.restore(vec![state]).unwrap_err();
            assert!(reducer.save() == kept);
        }
    });
}

/// A server applies the mean of the estimates, and so do workers that gather messages.
#[test]
fn a_server_makes_the_same_steps_as_workers_that_gather() {
    let all =
        ["all-gather", "sparse-all-reduce", "server", "server:servers=2", "hierarchical:node=1"];
    for text in ["topk:ratio=0.1,ef=ef21", "onebit:ef=ef21,momentum=0.5"] {
        let names = all.iter().filter(|name| suits(name, &text.parse().unwrap()));
        let end = |name: &&str| {
            let mut run = Run::of(name, 3, text, &SIZES);
            run.policy.pull = Some("none".parse().unwrap());
            run.each(|rank, exchange| {
                let mut parameters = run.initial.clone();
                run.advance(rank, 0..STEPS, exchange, &mut parameters);
                assert!(exchange.sent(0).is_none(), "{name}: the sum has all elements");
                let state = saved(exchange);
                let sum = |(key, _): (&str, _)| key.ends_with("push/sum/t0.weight");
                assert!(rank > 0 || state.floats_under("").any(sum), "{name}");
                parameters
            })
        };
        let ends: Vec<_> = names.map(end).collect();
        for other in &ends[1..] {
            for (a, b) in ends[0][0].iter().zip(&other[0]) {
                near(a, b, text);
            }
        }
    }
}

#[test]
fn an_estimate_comes_to_a_gradient_that_stays() {
    let tensors = tensors(&[1000]);
    let errors = connected(2, |rank, transport| {
        let config = ReducerConfig {
            tensors: tensors.clone(),
            ..model("all-gather", "topk:ratio=0.1,ef=ef21")
        };
        let mut reducer = Reducer::new(Box::new(transport), config).unwrap();
        let group = reducer.form(&["t0.weight"]).unwrap();
        let all: Vec<_> = (0..2).map(|rank| gradients(&tensors, rank, 0).concat()).collect();
        let mut errors = Vec::new();
        for step in 0..10 {
            let mut values = all[rank].clone();
            reducer.average(group, step, &mut values).unwrap();
            let mean = all[0].iter().zip(&all[1]).map(|(a, b)| (a + b) / 2.0);
            errors.push(mean.zip(&values).map(|(m, v)| f64::from(m - v).powi(2)).sum::<f64>());
        }
        errors
    });
    // A tenth of the elements a step: after ten, the whole gradient.
    assert!(errors[0].is_sorted_by(|a, b| a > b), "{:?}", errors[0]);
    assert!(errors[0][9] < 1e-9, "{:?}", errors[0]);
}
