//! The AdaComp paper.

mod figure_7;
mod paper;
mod tables;

pub(super) use figure_7::FIGURE_7;
pub(super) use tables::{FIGURE_4, FIGURE_5, TABLE_2};
