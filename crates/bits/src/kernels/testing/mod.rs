//! Comparison of the kernels' instruction sets with each other, for tests and for the fuzz target
//! `kernels`.
//!
//! [`limited`] runs code as on a processor with fewer instructions, so one machine tests all of
//! them.

pub(super) mod cases;
mod input;
mod several;
mod versions;

pub use super::level::{InstructionSet, limited};
pub use cases::{Case, kernels};
use input::Shifted;
pub use input::{Input, Output};

/// Runs a kernel with each instruction set of this processor.
///
/// # Panics
/// If one gives different bits than the plain loop.
pub fn check((name, run): Case, input: &Input) {
    let output = |set| {
        let mut output = Output::default();
        limited(set, || run(input, &mut output));
        output
    };
    let expected = output(InstructionSet::Plain);
    let sets = [InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512];
    for set in sets.into_iter().take(if cfg!(target_arch = "x86_64") { 3 } else { 1 }) {
        if let Some(at) = output(set).difference(&expected) {
            panic!(
                "{name}: {set:?} differs from the plain loop in word {at} of its output for {input:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
