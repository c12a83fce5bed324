//! Numerical routines that compressors share: statistics, selection and matrix products.

pub(crate) mod chunks;
pub(crate) mod components;
pub(crate) mod cosine;
pub(crate) mod eigen;
pub mod lloyd_max;
pub mod matrix;
pub mod moments;
pub mod rotation;
pub mod selection;
pub mod sketch;
pub(crate) mod svd;
pub mod tails;
pub(crate) mod take;
