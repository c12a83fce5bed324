//! Comparison of the kernels' instruction sets with each other, for tests and for the fuzz target
//! `kernels`.
//!
//! [`limited`] runs code as on a processor with fewer instructions, so one machine tests all of
//! them.

mod cases;
mod input;
mod several;

pub use super::level::{Level, limited};
pub use cases::KERNELS;
use input::Shifted;
pub use input::{Input, Output};

/// Runs a kernel of [`KERNELS`] with each instruction set of this processor.
///
/// # Panics
/// If one gives different bits than the scalar twin.
pub fn check(kernel: usize, input: &Input) {
    let (name, run) = KERNELS[kernel];
    let output = |level| {
        let mut output = Output::default();
        limited(level, || run(input, &mut output));
        output
    };
    let expected = output(Level::Baseline);
    let wide = [Level::Avx2, Level::Avx512, Level::Vbmi2];
    for level in wide.into_iter().filter(|level| level.is_used()) {
        if let Some(at) = output(level).difference(&expected) {
            panic!(
                "{name}: {level:?} differs from the scalar twin in word {at} of its output for {input:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
