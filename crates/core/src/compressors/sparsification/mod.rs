//! Few elements, at full precision.

mod fraction;
mod positions;
pub mod randomk;
pub mod topk;
