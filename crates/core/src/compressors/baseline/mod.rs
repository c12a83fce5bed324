//! Baselines: every element at full or half precision.

pub mod bf16;
mod dense;
pub mod fp16;
pub mod lossless;
pub mod none;
