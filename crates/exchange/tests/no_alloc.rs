//! A steady state allocates nothing: not to exchange, not to move bytes.

mod common;

#[path = "common/allocations.rs"]
mod allocations;

use allocations::{ALLOCATED, ALLOCATIONS};
use common::{RATE, Run, custom, exchange, gradients, specs, suits};
use gradwire::Dtype;
use gradwire_bits::kernels;
use gradwire_exchange::{
    OnNonFinite, Operation, Phase, Policy, Reducer, ReducerConfig, StepInput, Transport, in_process,
};

#[test]
fn a_step_allocates_nothing() {
    for name in ["all-reduce", "all-gather", "scatter-reduce", "sparse-all-reduce", "hierarchical"]
    {
        let customs = custom::momenta();
        for spec in specs().into_iter().chain(customs) {
            if !suits(name, &spec) {
                continue;
            }
            // Residuals, and with them some messages, grow for as many steps as it takes to send
            // all. One rank: what several ranks have in flight at a time depends on who is faster.
            let run = Run::new(exchange(name), 1, &spec, &[3, 0, 5000, 900]);
            run.each(|rank, exchange| {
                let mut parameters = run.initial.clone();
                for step in 0..140 {
                    let gradients = gradients(&run.tensors, rank, step);
                    let before = ALLOCATIONS.get();
                    exchange.step(StepInput::new(step, RATE, &gradients), &mut parameters).unwrap();
                    let allocated = ALLOCATIONS.get() - before;
                    // Finding the eigenvectors of a new basis takes memory, and the longest message
                    // of atoms drawn at random may be yet to come.
                    let id = spec.entry().id;
                    if (id == "gradiveq" && step % 2 == 0) || id == "atomo" {
                        continue;
                    }
                    assert!(step < 120 || allocated == 0, "{name}, {spec}, {step}: {allocated}");
                }
            });
        }
    }
}

#[test]
fn buffers_circulate() {
    let mut ranks = in_process::connect(2, in_process::Options::default());
    let (mut b, mut a) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    let payload = [1; 10_000];
    for step in 0..20 {
        let gather = Operation::whole(Phase::Gather, step);
        let before = ALLOCATIONS.get();
        a.send(1, gather, &payload).unwrap();
        b.send(0, gather, &payload[..5000]).unwrap();
        a.recv(1, gather, &mut at_a).unwrap();
        b.recv(0, gather, &mut at_b).unwrap();
        let allocated = ALLOCATIONS.get() - before;
        assert!(step < 10 || allocated == 0, "step {step}: {allocated} allocations");
    }
    assert_eq!((at_a.len(), at_b.len()), (5000, 10_000));
}

#[test]
fn what_goes_to_all_ranks_is_copied_once() {
    let mut ranks = in_process::connect(3, in_process::Options::default());
    let mut received = vec![Vec::new(); 3];
    let payload = vec![1; 1 << 20];
    for step in 0..20 {
        let gather = Operation::whole(Phase::Gather, step);
        let before = (ALLOCATIONS.get(), ALLOCATED.get());
        ranks[0].send_to_others(gather, &payload).unwrap();
        let most = payload.len() as u64 * 3 / 2;
        assert!(ALLOCATED.get() - before.1 < most, "both letters share one copy");
        for rank in [1, 2] {
            ranks[rank].recv(0, gather, &mut received[rank]).unwrap();
            assert!(received[rank] == payload);
        }
        let allocated = ALLOCATIONS.get() - before.0;
        assert!(step < 10 || allocated == 0, "step {step}: {allocated} allocations");
    }
}

#[test]
fn values_of_16_bits_are_averaged_in_a_buffer_that_stays() {
    let transport = in_process::connect(1, in_process::Options::default()).remove(0);
    let config = ReducerConfig {
        exchange: exchange("all-gather"),
        policy: Policy::new("topk".parse::<gradwire::Spec>().unwrap()),
        tensors: common::tensors(&[5000]),
        seed: 0,
        on_non_finite: OnNonFinite::Refuse,
    };
    let mut reducer = Reducer::new(Box::new(transport), config).unwrap();
    let group = reducer.form_of(&["t0.weight"], Dtype::F16).unwrap();
    let mut bits: Vec<u16> = (0..5000).map(|at| 0x3c00 + at % 1000).collect();
    for step in 0..140 {
        let before = ALLOCATIONS.get();
        let given = std::cell::RefCell::new(bits.as_mut_slice());
        let read = |wide: &mut Vec<f32>| {
            wide.resize(5000, 0.0);
            kernels::f16_to_f32(*given.borrow(), wide);
        };
        let write = |wide: &mut [f32]| kernels::f32_to_f16(wide, *given.borrow_mut());
        reducer.average_converted(group, step, 2.0, read, write).unwrap();
        let allocated = ALLOCATIONS.get() - before;
        assert!(step < 120 || allocated == 0, "{step}: {allocated}");
    }
}
