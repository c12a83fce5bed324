//! The 3LC paper: H. Lim, D. G. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression for
//! Distributed Machine Learning", arXiv:1802.07389, 2018.

mod links;
mod paper;
mod table_1;
mod table_2;

pub(super) use links::LINKS;
pub(super) use table_1::TABLE_1;
pub(super) use table_2::TABLE_2;
