//! Compressors outside the registry, with their own memories.

use crate::common::custom::{momenta, plain};
use crate::common::{RATE, Run, exchange, gradients};
use gradwire::{Decoder, Encoder, Floats, Spec};
use gradwire_exchange::{Exchange, Policy, ReducerConfig};

const SIZES: [usize; 3] = [7, 3, 12];

fn run(name: &str, workers: usize, spec: &Spec) -> Run {
    Run::new(exchange(name), workers, spec, &SIZES)
}

#[test]
fn the_suitable_exchange_makes_no_rounds_with_a_memory_of_their_own() {
    for (_, spec) in plain() {
        assert_eq!(ReducerConfig::suitable(&Policy::new(&spec), 3), Exchange::AllGather, "{spec}");
    }
    let without = "powersgd".parse().unwrap();
    assert_eq!(ReducerConfig::suitable(&Policy::new(&without), 3), Exchange::AllReduce);
}

#[test]
fn all_reduce_refuses_rounds_with_a_memory_of_their_own() {
    let (_, powersgd) = plain().pop().unwrap();
    let refused = run("all-reduce", 3, &powersgd).setup().validate().unwrap_err().to_string();
    assert!(refused.contains("'powersgd'") && refused.contains("do not add"), "{refused}");
    run("all-gather", 3, &powersgd).setup().validate().unwrap();
    let off = powersgd.with_feedback(None);
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
            // The messages of the worker; a single worker owns all slices.
            let (mut worker, mut receiver) = (Encoder::new(&spec, 7, 0), Decoder::new(&spec, 7));
            let (tensor, mut pushed) = (&run.tensors[0], vec![0.0; 1000]);
            for step in 0..3 {
                let (gradient, mut message) = (gradients(&run.tensors, 0, step), Vec::new());
                worker.encode(tensor, step, Floats::F32(&gradient[0]), &mut message).unwrap();
                receiver.decode_add(tensor, step, 0, &message, 1.0, &mut pushed).unwrap();
            }
            let kept = end.state.floats("push/residual/t0.weight").unwrap();
            assert_eq!(kept, worker.residual("t0.weight").unwrap(), "{name}, {spec}");
            // On the way back, nothing of them is lost or counted twice.
            let left = end.state.floats(second).unwrap();
            for (at, &found) in end.parameters[0].iter().enumerate() {
                let expected = run.initial[0][at] - RATE * pushed[at] - factor * left[at];
                assert!((found - expected).abs() < 1e-5, "{name}, {spec}: {found} for {expected}");
            }
        }
    }
}
