//! Quantization: every element, in fewer bits.

mod block_scaled;
pub mod codebook8;
pub mod dynamic_tree;
pub mod eden;
pub mod efsignsgd;
mod elias_levels;
pub mod entropy_bits;
pub mod inceptionn;
pub mod int4;
pub mod int8;
pub mod lpc_svrg;
pub mod mxfp4;
pub mod mxfp8;
pub mod natural;
pub mod nvfp4;
pub mod onebit;
pub mod qsgd;
pub mod sign_means;
pub mod signsgd;
pub mod signum;
mod ternary;
pub mod terngrad;
pub mod thc;
pub mod three_lc;
mod two_levels;
