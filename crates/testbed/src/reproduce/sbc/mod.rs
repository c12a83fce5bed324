//! The paper on sparse binary compression (SBC).

mod grid;
mod paper;
mod table_2;

pub(super) use grid::GRID;
pub(super) use table_2::TABLE_2;
