//! A steady state allocates nothing: not to compress, not to decode.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use gradwire::{Decoder, Floats, Tensor};

thread_local! {
    /// Allocations of this thread; other tests and the harness have threads of their own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(vec![0; 100]);
    assert_eq!(ALLOCATIONS.get(), before + 1);
}

#[test]
fn nothing_is_allocated_per_step() {
    let tensors = [Tensor::new("conv", &[64, 3, 7, 7]), Tensor::new("fc", &[100_000])];
    for spec in specs().into_iter().chain(custom::momenta()) {
        let (mut encoder, mut decoder) = (encoder(&spec), Decoder::new(&spec, SEED));
        let mut message = Vec::new();
        let mut outs = tensors.each_ref().map(|tensor| vec![0.0f32; tensor.elements()]);
        for step in 0..10 {
            let gradients = tensors.each_ref().map(|tensor| gaussian(tensor.elements(), step));
            let before = ALLOCATIONS.get();
            for ((tensor, gradient), out) in tensors.iter().zip(&gradients).zip(&mut outs) {
                message.clear();
                encoder.assign(tensor.name(), &spec);
                decoder.assign(tensor.name(), &spec);
                encoder.encode(tensor, step, Floats::F32(gradient), &mut message).unwrap();
                decoder.decode_add(tensor, step, RANK, &message, 0.25, out).unwrap();
            }
            let allocated = ALLOCATIONS.get() - before;
            // Finding the eigenvectors of a new basis takes memory.
            if spec.to_string().contains("refresh=2") && step % 2 == 0 {
                continue;
            }
            assert!(step < 3 || allocated == 0, "{spec}, step {step}: {allocated} allocations");
        }
    }
}
