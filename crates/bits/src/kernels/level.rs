//! The instruction sets for which kernels are compiled.

/// An instruction set of x86-64; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(dead_code, unreachable_pub, reason = "the feature `testing` exports and constructs it")]
pub enum Level {
    /// What every processor has: the scalar twins.
    Baseline,
    /// AVX2, and POPCNT, LZCNT, BMI1 and BMI2, which came before it or with it.
    Avx2,
    /// The AVX-512 subsets F, BW, DQ and VL (from Skylake-X and Zen 4 on).
    Avx512,
    /// Also VBMI and VBMI2, which permute and compress bytes (from Ice Lake and Zen 4 on).
    Vbmi2,
}

impl Level {
    /// Whether kernels use these instructions: the processor has them, and no test forbids them.
    #[inline]
    pub(super) fn is_used(self) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if !super::testing::allowed(self) {
            return false;
        }
        match self {
            Level::Baseline => true,
            Level::Avx2 => {
                std::is_x86_feature_detected!("avx2")
                    && std::is_x86_feature_detected!("popcnt")
                    && std::is_x86_feature_detected!("lzcnt")
                    && std::is_x86_feature_detected!("bmi1")
                    && std::is_x86_feature_detected!("bmi2")
            }
            Level::Avx512 => {
                Level::Avx2.is_used()
                    && std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("avx512dq")
                    && std::is_x86_feature_detected!("avx512vl")
            }
            Level::Vbmi2 => {
                Level::Avx512.is_used()
                    && std::is_x86_feature_detected!("avx512vbmi")
                    && std::is_x86_feature_detected!("avx512vbmi2")
            }
        }
    }
}
