//! The 3LC paper: H. Lim, D. G. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression for
//! Distributed Machine Learning", arXiv:1802.07389, 2018.

mod links;
mod paper;
mod tables;

pub(super) use links::LINKS;
pub(super) use tables::{TABLE_1, TABLE_2};
