//! A steady state allocates nothing: not to compress, not to decode.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use gradwire::{Decoder, Error, Floats, Spec, Tensor};

thread_local! {
    /// Allocations of this thread; other tests and the harness have threads of their own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// How many more large allocations this thread is given.
    static GRANTED: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Allocations of this many bytes or more are large: more than any compressor has in fixed buffers.
const LARGE: usize = 2048;

/// Whether this thread is given an allocation of `size` bytes.
fn granted(size: usize) -> bool {
    let left = if size < LARGE { Some(GRANTED.get()) } else { GRANTED.get().checked_sub(1) };
    left.inspect(|&left| GRANTED.set(left)).is_some()
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged, or refused.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if !granted(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if !granted(size) {
            return std::ptr::null_mut();
        }
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
    // Their long messages have a significance map.
    let maps = ["qsgd:s=4,code=huffman", "entropy-bits:c=1"].map(|spec| spec.parse().unwrap());
    let gradients = |step| tensors.each_ref().map(|tensor| gaussian(tensor.elements(), step));
    let steps: Vec<_> = (0..10).map(gradients).collect();
    for spec in specs().into_iter().chain(custom::momenta()).chain(maps) {
        let (mut encoder, mut decoder) = (encoder(&spec), Decoder::new(&spec, SEED));
        let mut message = Vec::new();
        let mut outs = tensors.each_ref().map(|tensor| vec![0.0f32; tensor.elements()]);
        for (step, gradients) in (0..).zip(&steps) {
            let mut allocated = 0;
            for ((tensor, gradient), out) in tensors.iter().zip(gradients).zip(&mut outs) {
                message.clear();
                let before = ALLOCATIONS.get();
                encoder.assign(tensor.name(), &spec);
                decoder.assign(tensor.name(), &spec);
                encoder.encode(tensor, step, Floats::F32(gradient), &mut message).unwrap();
                let encoded = ALLOCATIONS.get();
                decoder.decode_add(tensor, step, RANK, &message, 0.25, out).unwrap();
                allocated += ALLOCATIONS.get() - encoded;
                if !decomposes(&spec, tensor, step) {
                    allocated += encoded - before;
                }
            }
            assert!(step < 3 || allocated == 0, "{spec}, step {step}: {allocated} allocations");
        }
    }
}

/// Whether encoding finds eigenvectors, which takes memory: for a new basis of `gradiveq`, and for
/// the atoms of a matrix.
fn decomposes(spec: &Spec, tensor: &Tensor, step: u64) -> bool {
    let text = spec.to_string();
    match spec.entry().id {
        "gradiveq" => text.contains("refresh=2") && step.is_multiple_of(2),
        "atomo" => !text.contains("atoms=entries") && tensor.shape().len() > 1,
        _ => false,
    }
}

/// Refuses the first large allocation of a decoder, then the second of another one, and so on until
/// decoding succeeds. An allocation that fails where no error can be returned ends the process;
/// `--nocapture` shows the spec.
#[test]
fn a_decoder_without_memory_returns_an_error_and_changes_nothing() {
    let tensor = Tensor::new("fc", &[500, 400]);
    let mut refused = 0;
    for spec in specs() {
        eprintln!("{spec}");
        let gradient = gaussian(tensor.elements(), 0);
        let mut message = Vec::new();
        encoder(&spec).encode(&tensor, 0, Floats::F32(&gradient), &mut message).unwrap();
        for allocations in 0.. {
            let (mut decoder, mut out) = (Decoder::new(&spec, SEED), vec![1.0; tensor.elements()]);
            GRANTED.set(allocations);
            let decoded = decoder.decode_add(&tensor, 0, RANK, &message, 1.0, &mut out);
            GRANTED.set(usize::MAX);
            let Err(error) = decoded else { break };
            assert!(matches!(error, Error::OutOfMemory { .. }), "{spec}: {error}");
            assert!(out.iter().all(|value| *value == 1.0), "{spec}");
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused} allocations were refused");
}
