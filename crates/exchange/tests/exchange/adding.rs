//! Reducers whose tensors become known one after the other.

use gradwire::{Kept, Tensor};
use gradwire_exchange::{KeptArray, KeptFor, Reducer, ReducerConfig};

use super::reducer::{model, ranks};
use crate::common::gradients;

const RANKS: usize = 3;

/// A configuration of tensors that divide by the number of ranks.
fn calls(exchange: &str) -> ReducerConfig {
    let text = if exchange == "all-reduce" { "fp16:ef=on" } else { "topk:ratio=0.05" };
    let tensor = |size: usize| Tensor::new(format!("call of {size}"), &[size]);
    let tensors = [300, 9, 21_000, 9000].into_iter().map(tensor).collect();
    ReducerConfig { tensors, ..model(exchange, text) }
}

/// The bits of the means of three steps, with one group a tensor.
fn steps(reducer: &mut Reducer, tensors: &[Tensor], rank: usize, adds: bool) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    for step in 0..3 {
        for (tensor, mut values) in tensors.iter().zip(gradients(tensors, rank, step)) {
            if adds {
                reducer.add(tensor.clone()).unwrap();
            }
            let group = reducer.group_of(&[tensor.name()]).unwrap();
            reducer.average(group, step, &mut values).unwrap();
            // With shards, the others are unspecified.
            let shard = values.len() / RANKS;
            let own = &values[rank * shard..(rank + 1) * shard];
            found.push(own.iter().map(|value| value.to_bits()).collect());
        }
    }
    found
}

#[test]
fn tensors_may_be_added_before_their_first_average() {
    for exchange in ["all-reduce", "all-gather", "scatter-reduce", "reduce-scatter"] {
        let known = calls(exchange);
        let tensors = known.tensors.clone();
        let unknown = ReducerConfig { tensors: Vec::new(), ..known.clone() };
        let run = |config, adds| {
            let models = vec![config; RANKS];
            ranks(models, |rank, reducer| steps(reducer, &tensors, rank, adds))
        };
        assert_eq!(run(unknown, true), run(known, false), "{exchange}");
    }
}

#[test]
fn a_tensor_that_differs_is_refused_on_all_ranks() {
    let config = ReducerConfig { tensors: Vec::new(), ..calls("all-gather") };
    ranks(vec![config; 2], |rank, reducer| {
        let call = |size: usize| Tensor::new(format!("call of {size}"), &[size]);
        reducer.add(call(100)).unwrap();
        reducer.add(call(100)).unwrap();
        assert_eq!(reducer.tensors().len(), 1);
        let refused = reducer.add(Tensor::new("call of 100", &[7])).unwrap_err().to_string();
        assert!(refused.contains("'call of 100' has the shape [100], not [7]"), "{refused}");
        let own = 200 + rank;
        reducer.add(call(own)).unwrap();
        let refused = reducer.group_of(&[format!("call of {own}")]).unwrap_err().to_string();
        let names = ["call of 200", "call of 201"];
        assert!(names.iter().all(|name| refused.contains(name)), "{refused}");
    });
}

#[test]
fn a_tensor_forgets_what_is_kept_for_it() {
    for (exchange, slice) in [("all-gather", ""), ("scatter-reduce", "[0..7000]")] {
        let config = calls(exchange);
        let tensors = config.tensors.clone();
        ranks(vec![config; RANKS], |rank, reducer| {
            steps(reducer, &tensors, rank, false);
            let name = format!("call of 21000{slice}");
            let kept = |reducer: &Reducer, of| {
                let array = KeptArray { name: &name, kind: Kept::Residual, of };
                reducer.array(array).is_some()
            };
            let averages = exchange == "scatter-reduce" && rank == 0;
            assert!(kept(reducer, KeptFor::Gradients));
            assert_eq!(kept(reducer, KeptFor::Averages), averages);
            assert!(reducer.forget("call of 21000").unwrap());
            assert!(!kept(reducer, KeptFor::Gradients) && !kept(reducer, KeptFor::Averages));
            assert!(!reducer.forget("call of 21000").unwrap());
            assert!(reducer.forget("another call").is_err());
        });
    }
}
