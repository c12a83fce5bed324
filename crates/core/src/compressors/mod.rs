//! The compressors, one a file, by family. The [registry](crate::registry) lists them.

pub mod baseline;
pub(crate) mod fields;
pub mod hybrid;
pub(crate) mod levels;
pub mod low_rank;
pub mod quantization;
pub mod sparsification;
pub(crate) mod symbols;

#[cfg(test)]
mod testing;
