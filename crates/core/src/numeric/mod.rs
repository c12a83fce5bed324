//! Statistics and selections that compressors share.

pub mod matrix;
pub mod moments;
pub mod selection;
pub mod sketch;
pub mod svd;
pub mod tails;
pub(crate) mod take;
