//! A steady state with overlap allocates nothing, in the caller's thread nor in the reducer's.
//!
//! A binary of its own: allocations of all its threads are counted.

mod common;

#[path = "common/allocations.rs"]
mod allocations;

use std::sync::atomic::Ordering;

use allocations::OF_ALL_THREADS;
use common::{RATE, Run, exchange, gradients};
use gradwire_exchange::StepInput;

#[test]
fn a_step_with_overlap_allocates_nothing() {
    for name in ["all-reduce", "all-gather", "scatter-reduce"] {
        for text in ["none", "fp16", "3lc", "topk:ratio=0.05", "powersgd"] {
            let spec = text.parse().unwrap();
            if !common::suits(name, &spec) {
                continue;
            }
            let mut run = Run::new(exchange(name), 1, &spec, &[3, 0, 5000, 900]);
            run.groups = Some(vec![vec![3, 2], vec![1, 0]]);
            run.each(|rank, exchange| {
                let mut parameters = run.initial.clone();
                for step in 0..140 {
                    let gradients = gradients(&run.tensors, rank, step);
                    let before = OF_ALL_THREADS.load(Ordering::Relaxed);
                    let sink = exchange.gradient_sink(step).unwrap();
                    (2..4).rev().for_each(|index| sink.ready(index, &gradients[index]));
                    exchange.step(StepInput::new(step, RATE, &gradients), &mut parameters).unwrap();
                    let allocated = OF_ALL_THREADS.load(Ordering::Relaxed) - before;
                    assert!(step < 120 || allocated == 0, "{name}, {spec}, {step}: {allocated}");
                    assert!(exchange.message_bytes(2) > 0);
                }
            });
        }
    }
}
