//! Products of thin matrices.

pub mod atomo;
