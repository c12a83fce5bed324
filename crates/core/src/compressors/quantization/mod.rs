//! Every element, in fewer bits.

pub mod entropy_bits;
pub mod int8;
pub mod onebit;
pub mod signsgd;
pub mod signum;
mod ternary;
pub mod terngrad;
pub mod three_lc;
mod two_levels;
