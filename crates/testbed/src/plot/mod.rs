//! Charts as SVG.

mod axis;
mod boxes;
mod chart;
mod figure;
mod frame;
mod heat;
mod labels;
mod places;
mod scatter;
mod style;
mod unit;

pub use axis::Scale;
pub use boxes::BoxPlot;
pub use chart::{Chart, Point, Series};
pub use figure::{Drawing, Figure, NARROW, WIDE};
pub use heat::HeatMap;
pub use scatter::{Band, Mark, Scatter};
pub use unit::Unit;
