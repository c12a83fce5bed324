//! All-gather: means are what an encoder for each rank and a decoder give, without any exchange.

use gradwire::{Decoder, Encoder, Floats, Spec, Tensor};
use gradwire_exchange::{OnNonFinite, Policy, ReducerConfig};

use super::reducer::{bits, ranks, step};
use crate::common::{exchange, gradients, specs, tensors};

const RANKS: usize = 3;
const SEED: u64 = 3;
const STEPS: u64 = 2;
const SIZES: [usize; 4] = [300, 7, 6000, 900];

fn model(spec: &Spec) -> ReducerConfig {
    let mut policy = Policy::new(spec.clone());
    (policy.raw_vectors, policy.raw_below) = (false, 0);
    ReducerConfig {
        exchange: exchange("all-gather"),
        policy,
        tensors: tensors(&SIZES),
        seed: SEED,
        on_non_finite: OnNonFinite::Refuse,
    }
}

/// The means of each step. The messages of a rank are added to all tensors before those of the
/// next.
fn reference(spec: &Spec, tensors: &[Tensor]) -> Vec<Vec<u32>> {
    let encoder = |rank| Encoder::new(spec, SEED, rank as u32).with_ranks(RANKS as u32);
    let mut encoders: Vec<Encoder> = (0..RANKS).map(encoder).collect();
    let mut decoder = Decoder::new(spec, SEED);
    let mut means = |step| {
        let mut means: Vec<_> = tensors.iter().map(|one| vec![0.0; one.elements()]).collect();
        let mut sums = vec![Vec::new(); tensors.len()];
        for (rank, encoder) in encoders.iter_mut().enumerate() {
            let (from, weight) = ((step, rank as u32), 1.0 / RANKS as f32);
            for (at, gradient) in gradients(tensors, rank, step).iter().enumerate() {
                let (tensor, mut message) = (&tensors[at], Vec::new());
                encoder.encode(tensor, step, Floats::F32(gradient), &mut message).unwrap();
                let (sums, mean) = (&mut sums[at], &mut means[at]);
                decoder.accumulate(tensor, from, &message, weight, sums, mean).unwrap();
            }
        }
        for ((tensor, sums), mean) in tensors.iter().zip(&mut sums).zip(&mut means) {
            decoder.finish(tensor, step, sums, mean).unwrap();
            decoder.compressor_of(tensor.name()).aggregate(mean);
        }
        bits(&means)
    };
    (0..STEPS).map(&mut means).collect()
}

#[test]
fn every_compressor_gives_the_mean_of_what_ranks_send() {
    for spec in specs().iter().filter(|spec| !spec.sends_changes()) {
        let expected = reference(spec, &tensors(&SIZES));
        let found = ranks(vec![model(spec); RANKS], |rank, reducer| {
            // Several groups, whose tensors have another order than the model's.
            let groups = [vec![2, 0], vec![1], vec![3]];
            (0..STEPS).map(|at| bits(&step(reducer, &groups, rank, at))).collect::<Vec<_>>()
        });
        assert!(found.iter().all(|found| *found == expected), "{spec}");
    }
}
