//! Statistics and selections that compressors share.

pub mod moments;
pub mod selection;
pub mod tails;
