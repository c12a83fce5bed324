//! The SBC paper: F. Sattler, S. Wiedemann, K.-R. Müller, W. Samek, "Sparse Binary Compression: Towards Distributed
//! Deep Learning with minimal Communication", arXiv:1805.08768, 2018.

mod grid;
mod paper;
mod table_2;

pub(super) use grid::GRID;
pub(super) use table_2::TABLE_2;
