//! The compressors, one a file, by family. The [registry](crate::registry) lists them.

pub mod baseline;
mod fields;
pub mod hybrid;
pub mod low_rank;
pub mod quantization;
pub mod sparsification;

#[cfg(test)]
mod testing;
