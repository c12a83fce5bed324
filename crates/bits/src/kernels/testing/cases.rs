//! The cases of all kernels, and what they share.

pub(in crate::kernels) use alloc::vec;
pub(in crate::kernels) use alloc::vec::Vec;

pub(in crate::kernels) use super::several::*;
pub(in crate::kernels) use super::versions::*;
pub(in crate::kernels) use super::{Input, Output};

/// The name of a kernel, and a function that runs it on slices of the input and appends all its
/// results to the output.
pub type Case = (&'static str, fn(&Input, &mut Output));

/// All kernels.
pub fn kernels() -> impl Iterator<Item = Case> {
    let files = [
        crate::kernels::append::cases::CASES,
        crate::kernels::axpy::cases::CASES,
        crate::kernels::between::cases::CASES,
        crate::kernels::bins::cases::CASES,
        crate::kernels::block_scaled::cases::CASES,
        crate::kernels::changed::cases::CASES,
        crate::kernels::classes::cases::CASES,
        crate::kernels::codebook::cases::CASES,
        crate::kernels::codes::cases::CASES,
        crate::kernels::compact::cases::CASES,
        crate::kernels::convert::cases::CASES,
        crate::kernels::copy::cases::CASES,
        crate::kernels::digits::cases::CASES,
        crate::kernels::draw::cases::CASES,
        crate::kernels::gaps::cases::CASES,
        crate::kernels::hadamard::cases::CASES,
        crate::kernels::hash::cases::CASES,
        crate::kernels::int8::cases::CASES,
        crate::kernels::levels::cases::CASES,
        crate::kernels::lookups::cases::CASES,
        crate::kernels::mean::cases::CASES,
        crate::kernels::natural::cases::CASES,
        crate::kernels::nibbles::cases::CASES,
        crate::kernels::ones::cases::CASES,
        crate::kernels::order::cases::CASES,
        crate::kernels::pairs::cases::CASES,
        crate::kernels::philox::cases::CASES,
        crate::kernels::planes::cases::CASES,
        crate::kernels::prefetch::cases::CASES,
        crate::kernels::product::cases::CASES,
        crate::kernels::reduce::cases::CASES,
        crate::kernels::rotation::cases::CASES,
        crate::kernels::runs::cases::CASES,
        crate::kernels::separate::cases::CASES,
        crate::kernels::sign::cases::CASES,
        crate::kernels::single_bits::cases::CASES,
        crate::kernels::spread::cases::CASES,
        crate::kernels::state_hash::cases::CASES,
        crate::kernels::states::cases::CASES,
        crate::kernels::table::cases::CASES,
        crate::kernels::tagged::cases::CASES,
        crate::kernels::ternary::cases::CASES,
        crate::kernels::thin::cases::CASES,
        crate::kernels::truncate::cases::CASES,
        crate::kernels::uniform::cases::CASES,
        crate::kernels::width::cases::CASES,
        crate::kernels::zero_run::cases::CASES,
    ];
    files.into_iter().flatten().copied()
}
