//! Checks of every strategy, over any engine.

use super::engine::Engine;
use super::{RATE, Run, SIZES, SMALL_SIZES, bits, exchange, gradients, lossless, suits};

/// All ranks end with the same bits, for every compressor that the strategy takes, tensor size and
/// number of ranks; and the parameters have changed.
pub fn ends_identical(engine: &mut impl Engine, name: &str) {
    for spec in engine.specs().into_iter().filter(|spec| suits(name, spec)) {
        for workers in engine.workers(exchange(name).servers()) {
            // One number of workers has a tensor that is compressed in parts.
            let sizes = if workers == 3 { &SIZES } else { &SMALL_SIZES };
            let run = Run::new(exchange(name), workers, &spec, sizes);
            // Ranks in other processes compare digests at the end.
            let ranks = engine.steps(&run, 3);
            let Some(first) = ranks.first() else { continue };
            for (rank, other) in ranks.iter().enumerate().skip(1) {
                let same = bits(&other.parameters) == bits(&first.parameters);
                assert!(same, "{name}, {spec}: {rank} of {workers}");
            }
            let moved = run.initial.iter().zip(&first.parameters).filter(|(a, b)| a != b);
            // Means of ±τ, and a learning rate times them, reach τ again only after some more
            // steps.
            let later = spec.entry().id == "strom" && name != "all-gather";
            assert!(later || moved.count() >= 6, "{name}, {spec}: nothing was learned");
        }
    }
}

/// Without compression a strategy computes the mean that a naive loop does, to the bit: `mean` has
/// its order of operations.
pub fn uncompressed_means_are_naive(
    engine: &mut impl Engine,
    name: &str,
    mean: impl Fn(&[f32]) -> f32,
) {
    for workers in engine.workers(exchange(name).servers()) {
        mean_is_naive(engine, name, workers, &SIZES, &mean);
    }
}

/// The same for this number of workers and tensors of these sizes.
pub fn mean_is_naive(
    engine: &mut impl Engine,
    name: &str,
    workers: usize,
    sizes: &[usize],
    mean: impl Fn(&[f32]) -> f32,
) {
    let run = Run::new(exchange(name), workers, &lossless(name), sizes);
    let expected = naive(&run, 2, |_, values| mean(values));
    for found in engine.steps(&run, 2) {
        assert!(bits(&found.parameters) == bits(&expected), "{name}, {workers} workers, {sizes:?}");
    }
}

/// The parameters of a single worker that sees all gradients; `mean` averages the ranks' values at
/// a step.
pub fn naive(run: &Run, steps: u64, mean: impl Fn(u64, &[f32]) -> f32) -> Vec<Vec<f32>> {
    let (mut parameters, mut global) = (run.initial.clone(), run.initial.clone());
    for step in 0..steps {
        let all: Vec<_> =
            (0..run.workers).map(|rank| gradients(&run.tensors, rank, step)).collect();
        for (index, tensor) in parameters.iter_mut().enumerate() {
            for (at, w) in tensor.iter_mut().enumerate() {
                let values: Vec<_> = all.iter().map(|gradients| gradients[index][at]).collect();
                let change = RATE * mean(step, &values);
                if run.exchange.servers() > 0 {
                    let old = global[index][at];
                    global[index][at] = old - change;
                    *w += global[index][at] - old;
                } else {
                    *w -= change;
                }
            }
        }
    }
    parameters
}

/// The mean of a strategy, in its order of operations.
pub fn mean_of(name: &str) -> fn(&[f32]) -> f32 {
    match name {
        "all-reduce" => sum_divided,
        "sparse-all-reduce" => pairwise_sum,
        "hierarchical" => |values| sum_of_nodes(values, 2),
        "hierarchical:node=3" => |values| sum_of_nodes(values, 3),
        _ => weighted_sum,
    }
}

/// Every value times 1/n. The values from the greatest power of two on are added to the first ones;
/// then neighbours are added, then pairs of neighbours, and so on.
fn pairwise_sum(values: &[f32]) -> f32 {
    let weight = 1.0 / values.len() as f32;
    let pairs =
        values.len().next_power_of_two() / if values.len().is_power_of_two() { 1 } else { 2 };
    let mut sums: Vec<f32> = values[..pairs].iter().map(|value| weight * value).collect();
    for (sum, value) in sums.iter_mut().zip(&values[pairs..]) {
        *sum += weight * value;
    }
    while sums.len() > 1 {
        sums = sums.chunks(2).map(|pair| pair[0] + pair[1]).collect();
    }
    sums[0]
}

/// The weighted mean of each node's ranks; then the weighted sum over the nodes.
fn sum_of_nodes(values: &[f32], node: usize) -> f32 {
    let part = 1.0 / values.len() as f32;
    values.chunks(node).fold(0.0, |sum, values| {
        let whole = values.iter().fold(0.0, |whole: f32, _| whole + part);
        sum + whole * values.iter().fold(0.0, |mean, value| mean + part / whole * value)
    })
}

/// Every value times 1/n, added in rank order.
fn weighted_sum(values: &[f32]) -> f32 {
    let weight = 1.0 / values.len() as f32;
    values.iter().fold(0.0, |sum, value| sum + weight * value)
}

/// The sum in rank order, over n.
fn sum_divided(values: &[f32]) -> f32 {
    values.iter().copied().reduce(|sum, value| sum + value).unwrap() / values.len() as f32
}
