//! Hybrid compressors: few elements, in few bits.

pub mod adacomp;
mod bins;
pub mod chunk_topk;
pub mod dryden;
pub mod local_selection;
pub mod qsparse_local;
pub mod sbc;
pub(super) mod signs;
pub mod sketchml;
pub mod strom;
