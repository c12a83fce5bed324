//! Charts as SVG.

mod axis;
mod boxes;
mod chart;
mod figure;
mod heat;

pub use axis::Scale;
pub use boxes::BoxPlot;
pub use chart::{Chart, Point, Series};
pub use figure::Figure;
pub use heat::HeatMap;
