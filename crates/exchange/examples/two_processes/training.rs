//! The training loop of one rank: linear regression, by hand. Each rank has data of its own.

use gradwire::{Rng, Spec, Tensor};
use gradwire_exchange::{OnNonFinite, Policy, Reducer, ReducerConfig, Result, Transport, digest};

/// Inputs of the model, and examples of a batch.
const INPUTS: usize = 64;
const BATCH: usize = 32;
const STEPS: u64 = 400;
const RATE: f32 = 0.05;

/// Trains as one rank; returns the loss of the first step and of the last one.
pub(crate) fn train(transport: Box<dyn Transport>) -> Result<[f32; 2]> {
    let rank = transport.rank() as u32;
    let compressor: Spec = "topk:ratio=0.25".parse().expect("it is in the registry");
    let config = ReducerConfig {
        exchange: "all-gather".parse().expect("it is an exchange"),
        policy: Policy::new(compressor),
        tensors: vec![Tensor::new("weight", &[INPUTS, 1])],
        seed: 0,
        on_non_finite: OnNonFinite::Refuse,
    };
    // Compares the configuration with the other ranks.
    let mut reducer = Reducer::new(transport, config)?;
    let group = reducer.form(&["weight"])?;
    let target = normal(u32::MAX, 0, INPUTS);
    let (mut weight, mut losses) = (vec![0.0; INPUTS], Vec::new());
    for step in 0..STEPS {
        let inputs = normal(rank, step, INPUTS * BATCH);
        let (loss, mut gradient) = backward(&weight, &target, &inputs);
        // The mean over ranks, in place.
        reducer.average(group, step, &mut gradient)?;
        for (w, g) in weight.iter_mut().zip(&gradient) {
            *w -= RATE * g;
        }
        losses.push(loss);
    }
    reducer.flush()?;
    println!("rank {rank}: the weights have the digest {:016x}", digest(&[weight]));
    Ok([losses[0], losses[losses.len() - 1]])
}

/// The mean squared error of a batch, and its gradient.
fn backward(weight: &[f32], target: &[f32], inputs: &[f32]) -> (f32, Vec<f32>) {
    let (mut loss, mut gradient) = (0.0, vec![0.0; INPUTS]);
    for input in inputs.chunks(INPUTS) {
        let error: f32 =
            input.iter().zip(weight.iter().zip(target)).map(|(x, (w, t))| x * (w - t)).sum();
        loss += error * error / BATCH as f32;
        for (g, x) in gradient.iter_mut().zip(input) {
            *g += error * x / BATCH as f32;
        }
    }
    (loss, gradient)
}

/// Numbers with deviation 1.
fn normal(rank: u32, step: u64, count: usize) -> Vec<f32> {
    let mut rng = Rng::new(0, 0, rank, step, 0);
    (0..count).map(|_| rng.normal()).collect()
}
