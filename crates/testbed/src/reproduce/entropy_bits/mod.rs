//! The paper on entropy-driven bit widths: A. Øland, B. Raj, "Reducing Communication Overhead in Distributed Learning by
//! an Order of Magnitude (Almost)", ICASSP 2015.

mod figure;
mod paper;

pub(super) use figure::{FIGURE_1, FIGURE_4, FIGURE_5};
