//! The paper on entropy-driven bit widths.

mod figure;
mod paper;

pub(super) use figure::{FIGURE_1, FIGURE_4, FIGURE_5};
