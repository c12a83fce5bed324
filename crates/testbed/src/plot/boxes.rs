//! Box plots: the distribution of the runs of each setting.

use maud::{Markup, html};

use super::axis::{Axis, Scale};
use super::figure::{Drawing, Figure, lines, pixels};
use super::frame::{Axes, Frame};
use super::labels::{CHARACTER, LINE, width, wrapped};
use super::style::Style;
use super::unit::Unit;

/// The part of a column's width that its box takes.
const BOX: f64 = 0.6;

/// Values by setting, with a box for each setting from the lower to the upper quartile, a line at
/// the median, a marker at the mean, and whiskers to the least and the greatest value.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxPlot {
    /// The title.
    pub title: String,
    /// The label of the settings.
    pub x: String,
    /// The label of the values.
    pub y: String,
    /// Each setting's label and values.
    pub columns: Vec<(String, Vec<f64>)>,
}

/// The least value, the quartiles and the greatest value; and the mean. `None` without values.
fn summary(values: &[f64]) -> Option<([f64; 5], f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    // Linear interpolation between two values.
    let quantile = |part: f64| {
        let place = part * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
    Some(([0.0, 0.25, 0.5, 0.75, 1.0].map(quantile), mean))
}

impl BoxPlot {
    /// The axes; the horizontal one has no tick marks, because no round number is on it.
    fn axes(&self) -> Axes<'_> {
        let values = self.columns.iter().flat_map(|column| column.1.iter().copied());
        Axes {
            x: Axis::around(Scale::Linear, Unit::Number, std::iter::empty()),
            y: Axis::around(Scale::Linear, Unit::Number, values),
            x_label: &self.x,
            y_label: &self.y,
        }
    }

    /// A column whose middle is at `x`.
    fn column(&self, frame: &Frame<'_>, at: usize, x: f64, half: f64) -> Markup {
        let (name, values) = &self.columns[at];
        let Some((quartiles, mean)) = summary(values) else { return Markup::default() };
        let style = Style(usize::from(at > 0));
        let ys = quartiles.map(|value| frame.y(value));
        let [least, lower, median, upper, greatest] = ys.map(pixels);
        let [left, right, middle] = [x - half, x + half, x].map(pixels);
        let whiskers = format!("M{middle} {least}V{lower}M{middle} {upper}V{greatest}");
        let value = quartiles.map(|value| Unit::Number.exact(value)).join(", ");
        html! {
            g class="series" data-name=(name) data-values=(value) stroke=(style.colour())
                fill=(style.colour()) {
                polyline points=(format!("{middle},{median}")) fill="none" {}
                path d=(format!("M{left} {lower}H{right}V{upper}H{left}Z")) fill-opacity="0.3" {}
                path d=(format!("M{left} {median}H{right}")) stroke-width="2.5" {}
                path d=(whiskers) stroke-width="2" {}
                path class="markers" d=(style.marker(x, frame.y(mean))) stroke="none" {}
            }
        }
    }
}

impl Figure for BoxPlot {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| &**name).collect();
        format!("Boxes of {} for each value of {}: {}.", self.y, self.x, names.join(", "))
    }

    fn draw(&self, width_of_all: f64) -> Drawing {
        let height = Frame::height(0.5 * width_of_all);
        let frame = Frame::without_x_ticks(self.axes(), width_of_all, height, CHARACTER);
        let step = (frame.right - frame.left) / self.columns.len().max(1) as f64;
        let most = ((step / CHARACTER) as usize).max(2);
        let middle = |at: usize| frame.left + step * (at as f64 + 0.5);
        let body = html! {
            (frame.draw())
            @for (at, (name, _)) in self.columns.iter().enumerate() {
                (self.column(&frame, at, middle(at), BOX * step / 2.0))
                @let name = wrapped(name, most);
                // A long name of a narrow column stands on the line below.
                @let below = if at % 2 == 1 && width(&name) > step { LINE } else { 0.0 };
                (lines(middle(at), frame.bottom + LINE + 3.0 + below, "middle", &name[..1]))
            }
        };
        Drawing { width: width_of_all, height, body }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::NARROW;
    use super::*;

    #[test]
    fn quartiles_by_hand() {
        assert_eq!(summary(&[4.0, 1.0, 3.0, 2.0]), Some(([1.0, 1.75, 2.5, 3.25, 4.0], 2.5)));
        assert_eq!(summary(&[7.0]), Some(([7.0; 5], 7.0)));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn every_setting_has_its_label() {
        let column = |label: &str, values: &[f64]| (label.to_owned(), values.to_vec());
        let plot = BoxPlot {
            title: "accuracy".to_owned(),
            x: "bits".to_owned(),
            y: "per cent".to_owned(),
            columns: vec![column("none", &[90.0, 92.0]), column("8", &[91.0]), column("4", &[])],
        };
        let svg = plot.svg(NARROW).into_string();
        for part in
            ["accuracy", "bits", "per cent", ">none<", ">8<", ">4<", "90, 90.5, 91, 91.5, 92"]
        {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(BoxPlot { columns: Vec::new(), ..plot }.svg_file().contains("</svg>"));
    }
}
