//! The instruction sets for which kernels are compiled.

use std::sync::LazyLock;

/// An instruction set of x86-64; each includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(dead_code, unreachable_pub, reason = "the feature `testing` exports and constructs it")]
pub enum Level {
    /// The instructions of every processor: the scalar twins.
    Baseline,
    /// AVX2, with the earlier or simultaneous POPCNT, LZCNT, BMI1 and BMI2.
    Avx2,
    /// The AVX-512 subsets F, BW, DQ and VL (from Skylake-X and Zen 4 on).
    Avx512,
    /// Also VBMI and VBMI2, which permute and compress bytes (from Ice Lake and Zen 4 on).
    Vbmi2,
}

/// The widest that this processor has.
static WIDEST: LazyLock<Level> = LazyLock::new(Level::detected);

impl Level {
    /// Whether kernels use these instructions: the processor has them, and no test forbids them.
    #[inline]
    pub(crate) fn is_used(self) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if self > limit::LIMIT.get() {
            return false;
        }
        // Kernels on a few hundred elements ask too often for repeated detection.
        self <= *WIDEST
    }

    /// The widest that this processor has, by detection.
    fn detected() -> Self {
        use std::is_x86_feature_detected as has;

        if !(has!("avx2") && has!("popcnt") && has!("lzcnt") && has!("bmi1") && has!("bmi2")) {
            Level::Baseline
        } else if !(has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")) {
            Level::Avx2
        } else if !(has!("avx512vbmi") && has!("avx512vbmi2")) {
            Level::Avx512
        } else {
            Level::Vbmi2
        }
    }
}

#[cfg(any(test, feature = "testing"))]
mod limit {
    use core::cell::Cell;

    use super::Level;

    std::thread_local! {
        pub(super) static LIMIT: Cell<Level> = const { Cell::new(Level::Vbmi2) };
    }

    /// Runs `f`. Kernels in this thread use at most the instructions of `level`, and only those
    /// that the processor has.
    pub fn limited<T>(level: Level, f: impl FnOnce() -> T) -> T {
        let before = LIMIT.replace(level);
        let result = f();
        LIMIT.set(before);
        result
    }
}
#[cfg(any(test, feature = "testing"))]
pub use limit::limited;
