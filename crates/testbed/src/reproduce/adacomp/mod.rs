//! The AdaComp paper: C.-Y. Chen, J. Choi, D. Brand, A. Agrawal, W. Zhang, K. Gopalakrishnan, "AdaComp: Adaptive
//! Residual Gradient Compression for Data-Parallel Distributed Training", AAAI 2018.

mod figure_4;
mod figure_5;
mod figure_7;
mod paper;
mod table_2;
mod tables;

pub(super) use figure_4::FIGURE_4;
pub(super) use figure_5::FIGURE_5;
pub(super) use figure_7::FIGURE_7;
pub(super) use table_2::TABLE_2;
