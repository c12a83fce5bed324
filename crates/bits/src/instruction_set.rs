//! The instruction set that [kernels](crate::kernels) use on this processor.

use crate::kernels::level::BASELINE;

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
    use crate::kernels::testing::{InstructionSet, limited};

    #[test]
    fn it_is_what_kernels_may_use() {
        assert_eq!(limited(InstructionSet::Baseline, instruction_set), "sse2");
        let expected = if std::is_x86_feature_detected!("avx2") { "avx2" } else { "sse2" };
        assert_eq!(limited(InstructionSet::Avx2, instruction_set), expected);
    }
}
