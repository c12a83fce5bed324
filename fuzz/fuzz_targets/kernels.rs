//! Kernels: every instruction set must give the bits of the scalar twin.

#![no_main]

use gradwire_bits::kernels::testing::{Input, check, kernels};
use libfuzzer_sys::fuzz_target;

// The first bytes choose kernel, alignment, elements after the values and two numbers; the others
// are the values.
fuzz_target!(|input: &[u8]| {
    let Some((&[kernel, shape], rest)) = input.split_first_chunk() else { return };
    let (words, _) = rest.as_chunks();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let Some((&[x, y], values)) = words.split_first_chunk() else { return };
    let [offset, more] = [shape % 16, shape / 16].map(usize::from);
    let numbers = [x, y].map(f32::from_bits);
    let cases: Vec<_> = kernels().collect();
    check(
        cases[usize::from(kernel) % cases.len()],
        &Input::new(values, values.len() + more, offset, numbers),
    );
});
