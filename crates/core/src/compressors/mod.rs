//! The compressors, one a file, by family. The [registry](crate::registry) lists them.

pub mod baseline;
pub mod hybrid;
pub mod low_rank;
pub mod quantization;
pub mod sparsification;

pub(crate) use crate::wire::{fields, levels, symbols};

#[cfg(test)]
mod testing;
