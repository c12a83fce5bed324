//! All-gather: means are what an encoder for each rank and a decoder give, without any exchange.

use std::collections::HashSet;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use gradwire::{Decoder, Encoder, Floats, Spec, Tensor};
use gradwire_exchange::{
    Endpoint, Header, OnNonFinite, Operation, Phase, Policy, Reducer, ReducerConfig, Result,
    Transport, in_process::InProcess,
};

use super::reducer::{bits, ranks, step};
use crate::common::{connected, exchange, gradients, specs, tensors};

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

/// A transport that notes the buffers in which messages of a gather arrive.
struct Noting(InProcess, Arc<Mutex<HashSet<usize>>>);

impl Transport for Noting {
    fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    fn send(&mut self, to: usize, operation: Operation<'_>, payload: &[u8]) -> Result<()> {
        self.0.send(to, operation, payload)
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header)> {
        if during.phase == Phase::Gather {
            self.1.lock().unwrap().insert(std::ptr::from_mut(into).addr());
        }
        self.0.recv_any(from, during, until, into)
    }

    fn abort(&mut self, culprit: usize) {
        self.0.abort(culprit);
    }
}

#[test]
fn messages_of_all_ranks_are_kept_only_to_add_them_tensor_by_tensor() {
    let sizes = [100_000, 7, 60_000, 9000];
    let model = ReducerConfig { tensors: tensors(&sizes), ..model(&Spec::none()) };
    for (threads, group, buffers) in
        [(1, vec![0, 1, 2, 3], RANKS - 1), (1, vec![0], 1), (2, vec![0, 1, 2, 3], 1)]
    {
        let found = connected(RANKS, |rank, transport| {
            let places = Arc::new(Mutex::default());
            let transport = Noting(transport, Arc::clone(&places));
            let reducer = Reducer::new(Box::new(transport), model.clone()).unwrap();
            let mut reducer = reducer.with_threads(threads);
            (0..STEPS).for_each(|at| _ = step(&mut reducer, slice::from_ref(&group), rank, at));
            places.lock().unwrap().len()
        });
        assert_eq!(found, [buffers; RANKS], "{threads} threads, {group:?}");
    }
}
