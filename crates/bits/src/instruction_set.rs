//! The instruction sets for which [kernels](crate::kernels) are compiled.

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
const BASELINE: &str = if cfg!(target_arch = "x86_64") {
    "sse2"
} else if cfg!(target_arch = "aarch64") {
    "neon"
} else {
    "baseline"
};

/// The name of the instruction set that [kernels](crate::kernels) use here: `avx512`, `avx2` or
/// `sse2` on x86-64, `neon` on aarch64, elsewhere `baseline`. All give the same bits. The
/// environment variable `GRADWIRE_SIMD` limits it to one of these names; it is read once.
pub fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let used = crate::kernels::level::used();
        if used.as_avx512().is_some() {
            return "avx512";
        }
        if used.as_avx2().is_some() {
            return "avx2";
        }
    }
    BASELINE
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::kernels::testing::limited;

    #[test]
    fn it_is_what_kernels_may_use() {
        assert_eq!(limited(InstructionSet::Baseline, instruction_set), "sse2");
        let expected = if std::is_x86_feature_detected!("avx2") { "avx2" } else { "sse2" };
        assert_eq!(limited(InstructionSet::Avx2, instruction_set), expected);
    }
}
