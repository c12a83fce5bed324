//! Statistics and selections that compressors share.

pub mod moments;
pub mod selection;
pub mod svd;
pub mod tails;
