//! A steady state allocates nothing: not to exchange, not to move bytes.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{RATE, Run, custom, exchange, gradients, specs, suits};
use gradwire_exchange::{Operation, Phase, Transport, in_process};

thread_local! {
    /// Allocations of this thread; other tests and the harness have threads of their own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes they asked for.
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    ALLOCATED.set(ALLOCATED.get() + bytes as u64);
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[test]
fn a_step_allocates_nothing() {
    for name in ["all-reduce", "all-gather", "scatter-reduce", "sparse-all-reduce", "hierarchical"]
    {
        let customs = custom::momenta();
        for spec in specs().into_iter().chain(customs) {
            if !suits(name, &spec) {
                continue;
            }
            // Residuals, and with them some messages, grow for as many steps as it takes to send all.
            // One rank: what several ranks have in flight at a time depends on who is faster.
            let run = Run::new(exchange(name), 1, &spec, &[3, 0, 5000, 900]);
            let (results, _) = run.workers(|rank, exchange| {
                let mut parameters = run.initial.clone();
                for step in 0..140 {
                    let gradients = gradients(&run.tensors, rank, step);
                    let before = ALLOCATIONS.get();
                    exchange.step(gradwire_exchange::StepInput::new(step, RATE, &gradients), &mut parameters).unwrap();
                    let allocated = ALLOCATIONS.get() - before;
                    // Finding the eigenvectors of a new basis takes memory, and the longest message of atoms
                    // drawn at random may be yet to come.
                    let id = spec.entry().id;
                    if (id == "gradiveq" && step % 2 == 0) || id == "atomo" {
                        continue;
                    }
                    assert!(step < 120 || allocated == 0, "{name}, {spec}, {step}: {allocated}");
                }
            });
            results.into_iter().for_each(|result| result.unwrap());
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
