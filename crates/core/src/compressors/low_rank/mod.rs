//! Products of thin matrices in place of the gradient.
//!
//! A tensor is a matrix of its first dimension by the rest. Tensors of fewer than two dimensions, and
//! those that the factors would not shrink, travel as they are.

pub mod atomo;
mod factors;
pub mod gradiveq;
pub mod gradzip;
pub mod powersgd;
