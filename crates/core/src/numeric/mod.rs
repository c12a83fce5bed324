//! Numerical routines that compressors share: statistics, selection and matrix products.

pub(crate) mod chunks;
#[cfg(feature = "low-rank")]
pub(crate) mod components;
pub(crate) mod cosine;
#[cfg(feature = "low-rank")]
pub(crate) mod eigen;
pub mod lloyd_max;
#[cfg_attr(not(feature = "low-rank"), allow(dead_code, reason = "low-rank methods use all of it"))]
pub mod matrix;
pub mod moments;
pub mod rotation;
pub mod selection;
pub mod sketch;
#[cfg(feature = "low-rank")]
pub(crate) mod svd;
pub mod tails;
pub(crate) mod take;
