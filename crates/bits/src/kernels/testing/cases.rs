//! The cases of all kernels, and what they share.

pub(in crate::kernels) use alloc::vec;
pub(in crate::kernels) use alloc::vec::Vec;

pub(in crate::kernels) use super::several::*;
pub(in crate::kernels) use super::versions::*;
pub(in crate::kernels) use super::{Input, Output};

/// The name of a kernel, and a function that runs it on slices of the input and appends all its
/// results to the output.
pub type Case = (&'static str, fn(&Input, &mut Output));

/// Defines a list of the cases of files.
macro_rules! files {
    ($($file:ident)*) => {
        const FILES: &[&[Case]] = &[$(crate::kernels::$file::cases::CASES),*];
    };
}

files! {
    append axpy between bins block_scaled changed class_lists class_sizes classes codebook codes
    compact convert copy digits draw gaps hadamard hash int8 levels lookups mean natural nibbles
    ones order pairs philox planes prefetch product reduce rotation runs separate sign
    single_bits spread state_hash states table tagged ternary thin truncate uniform width
    zero_run zigzag
}

/// All kernels.
pub fn kernels() -> impl Iterator<Item = Case> {
    FILES.iter().copied().flatten().copied()
}
