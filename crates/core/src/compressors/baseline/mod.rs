//! Every element at full or half precision: what compressors are compared with.

pub mod bf16;
pub mod fp16;
mod half;
pub mod none;
