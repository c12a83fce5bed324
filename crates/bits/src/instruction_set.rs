//! The instruction set that kernels use on this processor.

/// The name of the instruction set that [kernels](crate::kernels) use here: on x86-64
/// `avx512-vbmi2`, `avx512` or `avx2`; on older processors and elsewhere the architecture, for
/// which the scalar twins are compiled. All give the same bits.
pub fn instruction_set() -> &'static str {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    {
        use crate::kernels::level::Level;

        let all =
            [(Level::Vbmi2, "avx512-vbmi2"), (Level::Avx512, "avx512"), (Level::Avx2, "avx2")];
        if let Some((_, name)) = all.iter().find(|(level, _)| level.is_used()) {
            return name;
        }
    }
    if cfg!(target_arch = "x86_64") {
        "x86-64"
    } else if cfg!(target_arch = "aarch64") {
        "aarch64"
    } else {
        "other"
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::kernels::testing::{Level, limited};

    #[test]
    fn it_is_what_kernels_may_use() {
        assert_eq!(limited(Level::Baseline, instruction_set), "x86-64");
        let expected = if std::is_x86_feature_detected!("avx2") { "avx2" } else { "x86-64" };
        assert_eq!(limited(Level::Avx2, instruction_set), expected);
    }
}
