//! States that version 1 wrote, with compressors by rule, are restored by tensor name.

use crate::common::{Run, saved};
use gradwire::{State, Tensor};
use gradwire_exchange::upgrade;

/// The run of the golden files, which hold its state after the second and after the third step.
fn run(name: &str) -> Run {
    let mut run = Run::of(name, 2, "topk:ratio=0.5", &[]);
    run.tensors = vec![
        Tensor::new("t0.weight", &[24]),
        Tensor::new("t1.weight", &[20]),
        Tensor::new("t2.weight", &[8, 6]),
        Tensor::new("t3.weight", &[30]),
        Tensor::new("t4.bias", &[3]),
    ];
    run.initial = crate::common::initial(&run.tensors);
    run.policy.push.later = vec![(1, "topk:ratio=0.1".parse().unwrap())];
    let rules = ["t0.* -> dgc:ratio=0.3", "t1.* -> signum:ef=on", "t2.* -> powersgd:rank=1"];
    run.policy.rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    run
}

fn parameters(run: &Run, state: &State) -> Vec<Vec<f32>> {
    let of = |tensor: &Tensor| state.floats(&format!("parameters/{}", tensor.name())).unwrap();
    run.tensors.iter().map(|tensor| of(tensor).to_vec()).collect()
}

/// Checks that two arrays of a tensor have the same bits; with `powersgd`, whose products another library computed when the
/// files were written, that they differ by rounding.
fn assert_same(tensor: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{tensor}");
    let room = if tensor.contains("t2.") { 1e-6 } else { 0.0 };
    for (x, y) in found.iter().zip(expected) {
        assert!(x.to_bits() == y.to_bits() || (x - y).abs() < room, "{tensor}: {x} for {y}");
    }
}

#[test]
fn a_run_goes_on_from_version_1_bit_for_bit() {
    for name in ["all-gather", "scatter-reduce"] {
        let file = format!("tests/golden/state-v1-{name}.safetensors");
        let read =
            State::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert_eq!(read.version(), 1);
        let golden = upgrade(read);
        assert_eq!(golden.version(), 2);
        let run = run(name);
        // Rules in another order: the state belongs to tensors.
        let mut turned = run.clone();
        turned.policy.rules.reverse();
        for run in [run, turned] {
            run.each(|rank, exchange| {
                let before = golden.extract(&format!("before{rank}/"));
                let after = golden.extract(&format!("after{rank}/"));
                let mut own = parameters(&run, &before);
                exchange.restore(&before).unwrap();
                run.step(rank, 2, exchange, &mut own);
                let expected = parameters(&run, &after);
                for ((tensor, own), expected) in run.tensors.iter().zip(&own).zip(&expected) {
                    assert_same(&format!("{name}, rank {rank}, {}", tensor.name()), own, expected);
                }
                let state = saved(exchange);
                for (key, values) in after.floats_under("push/") {
                    assert_same(key, state.floats(&format!("push/{key}")).unwrap(), values);
                }
                for (key, values) in after.floats_under("reduce/") {
                    assert_same(key, state.floats(&format!("reduce/{key}")).unwrap(), values);
                }
            });
        }
    }
}
