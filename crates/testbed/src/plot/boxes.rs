//! Box plots as SVG: the distribution of the runs of each setting.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, Scale};
use super::figure::{Area, Drawn, Figure, INK, colour, svg};

/// The size of a plot in pixels, and the fraction of a column's width for its box.
const SIZE: (u32, u32) = (720, 380);
const BOX: f64 = 0.6;

/// Values by setting, with a box for each setting from the lower to the upper quartile, a line at
/// the median, a dot at the mean, and whiskers to the least and the greatest value.
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
    fn draw(&self, root: &Area<'_>) -> Drawn {
        let y = Axis::around(Scale::Linear, self.columns.iter().flat_map(|c| c.1.iter().copied()));
        let columns = self.columns.len() as f64;
        let text = ("sans-serif", 13, &INK).into_text_style(root);
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, ("sans-serif", 18, &INK))
            .margin(8)
            .x_label_area_size(58)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..columns.max(1.0), y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.12))
            .axis_style(INK.mix(0.5))
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .y_desc(&self.y)
            .y_labels(8)
            .draw()?;
        let below = text.pos(Pos::new(HPos::Center, VPos::Top));
        let (across, down) = chart.plotting_area().get_pixel_range();
        for (at, (label, values)) in self.columns.iter().enumerate() {
            let middle = at as f64 + 0.5;
            let x = across.start + ((across.end - across.start) as f64 * middle / columns) as i32;
            root.draw(&Text::new(label.clone(), (x, down.end + 6), below.clone()))?;
            let Some((quartiles, mean)) = summary(values) else { continue };
            let [least, lower, median, upper, greatest] = quartiles;
            let (left, right) = (middle - BOX / 2.0, middle + BOX / 2.0);
            let style = colour(usize::from(at > 0));
            let line = |from: (f64, f64), to: (f64, f64)| {
                PathElement::new([from, to], style.stroke_width(2))
            };
            chart.draw_series([
                Rectangle::new([(left, lower), (right, upper)], style.mix(0.3).filled()),
                Rectangle::new([(left, lower), (right, upper)], style.stroke_width(1)),
            ])?;
            chart.draw_series([
                line((left, median), (right, median)),
                line((middle, least), (middle, lower)),
                line((middle, upper), (middle, greatest)),
            ])?;
            chart.draw_series([Circle::new((middle, mean), 3, style.filled())])?;
        }
        let centre = (across.start + (across.end - across.start) / 2, down.end + 28);
        root.draw(&Text::new(self.x.clone(), centre, below))?;
        Ok(())
    }
}

impl Figure for BoxPlot {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        svg(SIZE, |root| self.draw(root))
    }
}

#[cfg(test)]
mod tests {
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
        let svg = plot.svg();
        for part in ["accuracy", "bits", "per cent", "none", "8", "4", "circle"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!BoxPlot { columns: Vec::new(), ..plot }.svg().is_empty());
    }
}
