//! The frame of a plot: the rectangle, grid, tick marks and labels of two axes.

use maud::{Markup, html};

use super::axis::Axis;
use super::figure::{pixels, text};
use super::labels::{CHARACTER, LINE};

/// Space above the plot for the label of the vertical axis, and below it for the tick marks and the
/// label of the horizontal axis.
const ABOVE: f64 = 24.0;
const BELOW: f64 = 38.0;

/// The axes of a plot and their labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes<'a> {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
}

/// The rectangle of a plot in a drawing.
#[derive(Debug, Clone)]
pub(super) struct Frame<'a> {
    axes: Axes<'a>,
    x_ticks: Vec<(f64, String)>,
    y_ticks: Vec<(f64, String)>,
    width: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl<'a> Frame<'a> {
    /// A plot in a drawing of a width and a height that leaves `beside` pixels to its right.
    pub(super) fn new(axes: Axes<'a>, width: f64, height: f64, beside: f64) -> Self {
        let (top, bottom) = (ABOVE, height - BELOW);
        let y_ticks = axes.y.ticks(((bottom - top) / 32.0) as usize);
        let widest = y_ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        let (left, right) = (CHARACTER * widest as f64 + 10.0, width - beside);
        let x_ticks = axes.x.ticks(((right - left) / 52.0) as usize);
        Self { axes, x_ticks, y_ticks, width, left, right, top, bottom }
    }

    /// The same without tick marks on the horizontal axis.
    pub(super) fn without_x_ticks(axes: Axes<'a>, width: f64, height: f64, beside: f64) -> Self {
        Self { x_ticks: Vec::new(), ..Self::new(axes, width, height, beside) }
    }

    /// The height of a drawing whose plot has a height.
    pub(super) fn height(plot: f64) -> f64 {
        plot + ABOVE + BELOW
    }

    /// The pixel of a value on the horizontal axis.
    pub(super) fn x(&self, value: f64) -> f64 {
        self.left + (self.right - self.left) * self.axes.x.place(value)
    }

    /// The pixel of a value on the vertical axis.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * self.axes.y.place(value)
    }

    /// The same for the nearest value on the axis.
    pub(super) fn y_within(&self, value: f64) -> f64 {
        self.y(self.axes.y.clamp(value))
    }

    /// Grid, tick marks and labels.
    pub(super) fn draw(&self) -> Markup {
        let mut grid = String::new();
        for (value, _) in &self.y_ticks {
            grid += &format!(
                "M{} {}H{}",
                pixels(self.left),
                pixels(self.y(*value)),
                pixels(self.right)
            );
        }
        for (value, _) in &self.x_ticks {
            grid += &format!(
                "M{} {}V{}",
                pixels(self.x(*value)),
                pixels(self.top),
                pixels(self.bottom)
            );
        }
        html! {
            path d=(grid) fill="none" stroke="currentColor" stroke-opacity="0.14" {}
            path d=(self.outline()) fill="none" stroke="currentColor" stroke-opacity="0.6" {}
            @for (value, label) in &self.y_ticks {
                (text(self.left - 6.0, self.y(*value) + 4.5, "end", label))
            }
            @for (x, label) in self.x_texts() {
                (text(x, self.bottom + LINE + 3.0, "middle", label))
            }
            (text(2.0, 12.0, "start", self.axes.y_label))
            (text((self.left + self.right) / 2.0, self.bottom + 2.0 * LINE + 5.0, "middle", self.axes.x_label))
        }
    }

    /// The texts of the tick marks on the horizontal axis that do not touch the one before.
    fn x_texts(&self) -> Vec<(f64, &str)> {
        let mut end = f64::NEG_INFINITY;
        let mut texts = Vec::new();
        for (value, label) in &self.x_ticks {
            let half = CHARACTER * label.chars().count() as f64 / 2.0;
            let x = self.x(*value).min(self.width - half);
            if x - half > end {
                end = x + half + 2.0;
                texts.push((x, label.as_str()));
            }
        }
        texts
    }

    /// The two axes.
    fn outline(&self) -> String {
        let [left, right, top, bottom] = [self.left, self.right, self.top, self.bottom].map(pixels);
        format!("M{left} {top}V{bottom}H{right}")
    }
}
