//! Low-rank compressors: products of thin matrices approximate the gradient.
//!
//! A tensor is a matrix: its first dimension by the product of the others. Tensors of fewer than
//! two dimensions, and tensors that the factors would not shrink, are sent uncompressed.

pub mod acp_sgd;
pub mod atomo;
mod device;
mod factors;
pub mod gradiveq;
pub mod gradzip;
pub mod powersgd;
