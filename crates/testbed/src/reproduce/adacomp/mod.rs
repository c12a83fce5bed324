//! The AdaComp paper: C.-Y. Chen, J. Choi, D. Brand, A. Agrawal, W. Zhang, K. Gopalakrishnan, "AdaComp: Adaptive
//! Residual Gradient Compression for Data-Parallel Distributed Training", AAAI 2018.

mod figure_7;
mod paper;
mod tables;

pub(super) use figure_7::FIGURE_7;
pub(super) use tables::{FIGURE_4, FIGURE_5, TABLE_2};
