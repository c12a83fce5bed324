//! The instruction set that kernels use, chosen at run time.

#[cfg(any(test, feature = "testing"))]
use core::cell::Cell;

pub(crate) use fearless_simd::Level;

#[cfg(feature = "std")]
use crate::instruction_set::InstructionSet;

/// The widest instruction set that this processor has and that `GRADWIRE_SIMD` allows.
#[cfg(feature = "std")]
static WIDEST: std::sync::LazyLock<Level> =
    std::sync::LazyLock::new(|| within(Level::new(), InstructionSet::allowed()));

/// The instruction set that kernels use here.
#[inline]
pub(crate) fn used() -> Level {
    // Kernels on a few hundred elements ask too often for repeated detection.
    #[cfg(feature = "std")]
    let widest = *WIDEST;
    #[cfg(not(feature = "std"))]
    let widest = Level::baseline();
    #[cfg(any(test, feature = "testing"))]
    let widest = within(widest, LIMIT.get());
    widest
}

/// The widest instructions of `level` that `limit` includes.
#[cfg(feature = "std")]
fn within(level: Level, limit: InstructionSet) -> Level {
    #[cfg(target_arch = "x86_64")]
    if limit < InstructionSet::Avx512
        && let Some(avx2) = level.as_avx2()
    {
        return if limit < InstructionSet::Avx2 { Level::baseline() } else { Level::Avx2(avx2) };
    }
    let _ = limit;
    level
}

#[cfg(any(test, feature = "testing"))]
std::thread_local! {
    static LIMIT: Cell<InstructionSet> = const { Cell::new(InstructionSet::WIDEST) };
}

/// Runs `f`. Kernels in this thread use at most the instructions of `limit`, and only those that
/// the processor has.
#[cfg(any(test, feature = "testing"))]
pub fn limited<T>(limit: InstructionSet, f: impl FnOnce() -> T) -> T {
    let before = LIMIT.replace(limit);
    let result = f();
    LIMIT.set(before);
    result
}

/// Whether this thread runs the plain loops that tests compare kernels with.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn is_plain() -> bool {
    LIMIT.get() == InstructionSet::Plain
}
