//! The instruction set that kernels use, chosen at run time.

#[cfg(any(test, feature = "testing"))]
use core::cell::Cell;

pub(crate) use fearless_simd::Level;

/// An instruction set; on one architecture, each includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(dead_code, unreachable_pub, reason = "the feature `testing` exports and constructs it")]
pub enum InstructionSet {
    /// Plain loops, one element at a time, which tests compare the kernels with.
    #[cfg(any(test, feature = "testing"))]
    Plain,
    /// The instructions that every processor of the architecture has: SSE2 on x86-64, NEON on
    /// aarch64.
    Baseline,
    /// AVX2 with FMA, F16C, BMI1 and BMI2: x86-64-v3, from Haswell and Zen on.
    Avx2,
    /// AVX-512 as from Ice Lake and Zen 4 on. Processors with less of it use AVX2.
    Avx512,
}

impl InstructionSet {
    /// The widest of all.
    #[cfg(feature = "std")]
    pub(crate) const WIDEST: Self = Self::Avx512;

    /// The names that [`InstructionSet::allowed`] reads.
    #[cfg(feature = "std")]
    const NAMES: [(&str, Self); 3] =
        [("avx512", Self::Avx512), ("avx2", Self::Avx2), (BASELINE, Self::Baseline)];

    /// The widest instruction set that the environment allows: the variable `GRADWIRE_SIMD`, for
    /// benchmarks and bug reports. Warns of a name that it does not know.
    #[cfg(feature = "std")]
    pub(crate) fn allowed() -> Self {
        let Some(name) = std::env::var_os("GRADWIRE_SIMD") else { return Self::WIDEST };
        if let Some((_, set)) = Self::NAMES.iter().find(|(known, _)| name == *known) {
            return *set;
        }
        std::eprintln!(
            "gradwire: GRADWIRE_SIMD={} is ignored; known are {}",
            name.display(),
            Self::NAMES.map(|(known, _)| known).join(", ")
        );
        Self::WIDEST
    }
}

/// The name of the instructions that every processor of this architecture has.
pub(crate) const BASELINE: &str = if cfg!(target_arch = "x86_64") {
    "sse2"
} else if cfg!(target_arch = "aarch64") {
    "neon"
} else {
    "baseline"
};

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
