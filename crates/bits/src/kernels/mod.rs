//! Vector kernels: loops over slices that run at memory speed.
//!
//! Each is a safe function. On x86-64, with the feature `std`, it chooses the processor's widest
//! instruction set at run time. Its scalar twin is the plain loop it is compiled from. Kernels that
//! decode are elementwise and multiply before they add, without fusing, so that every processor
//! computes the same bits. Kernels that sum use sixteen lanes on every processor.
//!
//! Only this module of the crate has `unsafe` code: calls of functions compiled for instruction sets
//! that were detected, and writes into reserved capacity.

#![allow(unsafe_code)]

mod axpy;
mod bins;
mod codebook;
mod compact;
mod convert;
mod draw;
mod hash;
mod int8;
mod levels;
mod natural;
mod philox;
mod product;
mod reduce;
mod sign;
mod ternary;
mod truncate;
mod uniform;
mod zero_run;

pub use axpy::{accumulate, accumulate_to, add_scaled};
pub use bins::{Near, bin_maxima, reaching};
pub use codebook::{Codebook, nearest_residual, numbers_add};
pub use compact::{Side, compact_beyond, count_above};
pub use convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use draw::{drawn, sum_up_to};
pub use hash::hashed;
pub use int8::{int8_add, int8_residual};
pub use levels::{Levels, levels_add, stochastic_levels};
pub use natural::{natural_add, natural_residual};
pub use philox::philox4x32;
pub use product::{Columns, product};
pub use reduce::{SignSums, abs_max_bits, max_byte, sum_of_squares, sums_by_sign};
pub use sign::{sign_add, sign_residual};
pub use ternary::{stochastic_ternary, ternary_add, ternary_residual};
pub use truncate::{Cuts, truncate_residual, truncated_add, truncated_valid};
pub use uniform::{Bins, bin_of, extremes, middle_add, middle_off};
pub(crate) use zero_run::{encode_words, expanded_len};

/// Whether the processor has the AVX-512 subsets that the kernels use (from Skylake-X and Zen 4 on).
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[inline]
fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
}

/// Whether the processor also permutes and compresses bytes (from Ice Lake and Zen 4 on).
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[inline]
fn has_vbmi2() -> bool {
    has_avx512()
        && std::is_x86_feature_detected!("avx512vbmi")
        && std::is_x86_feature_detected!("avx512vbmi2")
}

/// Defines a kernel from a plain loop. The second name is the scalar twin, which is the loop itself. The
/// first name is the entry, which runs the same loop compiled for AVX-512 or AVX2 if the processor has
/// it.
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident / $twin:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        #[inline(always)]
        fn $twin($($arg: $type),*) $(-> $result)? $body

        $(#[$meta])*
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $type),*) $(-> $result)? {
                    $twin($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) $(-> $result)? {
                    $twin($($arg),*)
                }
                if $crate::kernels::has_avx512() {
                    // SAFETY: the processor has the features the function is compiled for.
                    return unsafe { avx512($($arg),*) };
                }
                if std::is_x86_feature_detected!("avx2") {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $twin($($arg),*)
        }
    };
}
use vectorised;

#[cfg(test)]
mod testing {
    //! Inputs for the kernels' tests: every length up to a few vectors, at every alignment.

    use alloc::vec::Vec;

    /// Values of every kind: both zeros, subnormals, halves, large and small numbers, both signs.
    pub(super) fn values(len: usize) -> Vec<f32> {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        (0..len)
            .map(|i| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let uniform = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
                match i % 11 {
                    0 => 0.0,
                    1 => -0.0,
                    2 => 0.5,
                    3 => -0.5,
                    4 => 1e-40 * uniform,
                    5 => 1e30 * uniform,
                    _ => 2.0 * uniform,
                }
            })
            .collect()
    }

    /// Calls `check` with slices of every length up to 200, and a long one, at four alignments.
    pub(super) fn sweep(mut check: impl FnMut(&[f32])) {
        let all = values(5003);
        for offset in 0..4 {
            for len in (0..200).chain([4096, 4999]) {
                check(&all[offset..offset + len]);
            }
        }
    }

    /// Whether two slices hold the same bits.
    pub(super) fn same(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
    }
}
