//! Comparison of the kernels' instruction sets with each other, for tests and for the fuzz target `kernels`.
//!
//! [`limited`] runs code as on a processor with fewer instructions, so that one machine tests all of them.

mod cases;
mod input;
mod several;

use core::cell::Cell;

pub use super::level::Level;
pub use cases::KERNELS;
use input::Shifted;
pub use input::{Input, Output};

std::thread_local! {
    static LIMIT: Cell<Level> = const { Cell::new(Level::Vbmi2) };
}

/// Whether [`limited`] lets kernels of this thread use an instruction set.
pub(super) fn allowed(level: Level) -> bool {
    level <= LIMIT.get()
}

/// Runs `f`; kernels in this thread use at most the instructions of `level`, and only those that the processor has.
pub fn limited<T>(level: Level, f: impl FnOnce() -> T) -> T {
    let before = LIMIT.replace(level);
    let result = f();
    LIMIT.set(before);
    result
}

/// Runs a kernel of [`KERNELS`] with each instruction set of this processor.
///
/// # Panics
/// If one gives other bits than the scalar twin.
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
