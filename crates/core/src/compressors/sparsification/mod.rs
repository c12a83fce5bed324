//! Sparsification: few elements, at full precision.

pub mod adaptive;
pub mod demo;
pub mod dgc;
pub(super) mod drawn;
pub(super) mod fraction;
pub mod gradient_dropping;
pub mod randomk;
pub mod sgc;
pub mod sketched_sgd;
pub mod threshold;
pub mod topk;
pub mod variance;
