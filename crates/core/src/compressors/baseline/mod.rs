//! Baselines: every element at full or half precision.

pub mod bf16;
pub mod fp16;
mod half;
pub mod none;
