//! The 3LC paper.

mod links;
mod paper;
mod tables;

pub(super) use links::LINKS;
pub(super) use tables::{TABLE_1, TABLE_2};
