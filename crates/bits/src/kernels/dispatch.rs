//! Selects the instruction set of kernels that are plain loops.

/// Defines a kernel from a plain loop. The second name is the scalar twin, which is the loop
/// itself. The first name is the entry, which runs the same loop compiled for AVX-512 or AVX2, and
/// BMI2, if the processor has them.
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident / $twin:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        #[inline(always)]
        fn $twin($($arg: $type),*) $(-> $result)? $body

        $(#[$meta])*
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,lzcnt,bmi1,bmi2")]
                fn avx512($($arg: $type),*) $(-> $result)? {
                    $twin($($arg),*)
                }
                #[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
                fn avx2($($arg: $type),*) $(-> $result)? {
                    $twin($($arg),*)
                }
                if $crate::kernels::level::Level::Avx512.is_used() {
                    // SAFETY: the processor has the features the function is compiled for.
                    return unsafe { avx512($($arg),*) };
                }
                if $crate::kernels::level::Level::Avx2.is_used() {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $twin($($arg),*)
        }
    };
}
pub(super) use vectorised;
