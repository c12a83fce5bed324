//! The compressors, one per file, by family. The [registry](crate::registry) lists them.

pub mod baseline;
pub mod hybrid;
#[cfg(feature = "low-rank")]
pub mod low_rank;
pub mod quantization;
mod single_rank;
pub mod sparsification;

pub use single_rank::SingleRank;

#[cfg(test)]
mod testing;
