//! Every element, in fewer bits.

pub mod entropy_bits;
pub mod int8;
pub mod onebit;
mod ternary;
pub mod terngrad;
pub mod three_lc;
