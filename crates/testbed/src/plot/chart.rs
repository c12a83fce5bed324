//! Charts of lines as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Axis, Scale};
use super::figure::{Area, Drawn, Figure, INK, colour, svg};

/// The size of a chart in pixels, and the fraction of its width for the legend.
const SIZE: (u32, u32) = (720, 380);
const LEGEND: u32 = 210;

/// The most characters of a label in the legend.
const LABEL: usize = 25;

type Chart2d<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// One value with its error bar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical axis.
    pub y: f64,
    /// The lower end of the error bar; `y` for none.
    pub low: f64,
    /// The upper end of the error bar; `y` for none.
    pub high: f64,
}

impl Point {
    /// A point without an error bar.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend; an empty one is left out there.
    pub label: String,
    /// Its points, from left to right.
    pub points: Vec<Point>,
    /// The number of its colour.
    pub colour: usize,
    /// Whether the line is dashed.
    pub dashed: bool,
}

impl Series {
    /// A solid line.
    pub fn new(label: &str, colour: usize, points: Vec<Point>) -> Self {
        Self { label: label.to_owned(), points, colour, dashed: false }
    }
}

/// A chart of several lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The horizontal axis: label with unit, scale.
    pub x: (String, Scale),
    /// The vertical axis: label with unit, scale.
    pub y: (String, Scale),
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    /// A chart with a title, the labels and scales of its axes, and its lines.
    pub fn new(
        title: impl Into<String>,
        (x, x_scale): (&str, Scale),
        (y, y_scale): (&str, Scale),
        series: impl IntoIterator<Item = Series>,
    ) -> Self {
        let (x, y) = ((x.to_owned(), x_scale), (y.to_owned(), y_scale));
        Self { title: title.into(), x, y, series: series.into_iter().collect() }
    }

    /// Adds a point to the line with this label, or to a new line in the next colour. Points may
    /// come in any order.
    pub(crate) fn add(&mut self, label: &str, point: Point) {
        let at = self.series.iter().position(|line| line.label == label).unwrap_or_else(|| {
            self.series.push(Series::new(label, self.series.len(), Vec::new()));
            self.series.len() - 1
        });
        let points = &mut self.series[at].points;
        points.insert(points.partition_point(|other| other.x <= point.x), point);
    }
}

impl Figure for Chart {
    fn title(&self) -> &str {
        &self.title
    }

    /// Leaves out values that an axis cannot show (not finite, or zero on a logarithmic axis).
    fn svg(&self) -> String {
        svg(SIZE, |root| self.draw(root))
    }
}

impl Chart {
    fn draw(&self, root: &Area<'_>) -> Drawn {
        let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::around(self.x.1, points().map(|p| p.x));
        let y = Axis::around(self.y.1, points().flat_map(|p| [p.y, p.low, p.high]));
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 18, &INK))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(x, y)?;
        let text = ("sans-serif", 13, &INK).into_text_style(&left);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.12))
            .axis_style(INK.mix(0.5))
            .label_style(text.clone())
            .axis_desc_style(text)
            .x_desc(&self.x.0)
            .y_desc(&self.y.0)
            .x_labels(8)
            .y_labels(8)
            .draw()?;
        for series in &self.series {
            self.line(&mut chart, series)?;
        }
        self.legend(&right)
    }

    fn line(&self, chart: &mut Chart2d<'_, '_>, series: &Series) -> Drawn {
        let style = colour(series.colour).stroke_width(2);
        let points: Vec<Point> = series
            .points
            .iter()
            .copied()
            .filter(|p| self.x.1.shows(p.x) && self.y.1.shows(p.y))
            .collect();
        let line = points.iter().map(|p| (p.x, p.y));
        if series.dashed {
            chart.draw_series(DashedLineSeries::new(line, 5, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(line, style))?;
        }
        let bars = points.iter().filter(|p| p.low < p.high && self.y.1.shows(p.low));
        chart.draw_series(bars.map(|p| {
            PathElement::new([(p.x, p.low), (p.x, p.high)], colour(series.colour).stroke_width(1))
        }))?;
        if points.len() <= 12 {
            let fill = colour(series.colour).filled();
            chart.draw_series(points.iter().map(|p| Circle::new((p.x, p.y), 3, fill)))?;
        }
        Ok(())
    }

    /// The legend: the names of the lines, one per row, to the right of the plot.
    fn legend(&self, area: &Area<'_>) -> Drawn {
        let text =
            ("sans-serif", 13, &INK).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        let named = self.series.iter().filter(|series| !series.label.is_empty());
        for (row, series) in named.enumerate() {
            let y = 44 + 22 * row as i32;
            let style = colour(series.colour).stroke_width(3);
            let ends = if series.dashed { vec![(4, 11), (17, 24)] } else { vec![(4, 24)] };
            for (from, to) in ends {
                area.draw(&PathElement::new([(from, y), (to, y)], style))?;
            }
            area.draw(&Text::new(shortened(&series.label), (32, y), text.clone()))?;
        }
        Ok(())
    }
}

/// A label that fits into the legend.
fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    label.chars().take(LABEL - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let points = [(1.0, 0.0), (10.0, 1.0), (100.0, f64::NAN)];
        let line = Series::new("3lc & co", 1, points.map(|(x, y)| Point::new(x, y)).to_vec());
        let (x, y) = (("seconds", Scale::Log), ("accuracy (%)", Scale::Linear));
        Chart::new("a < b", x, y, [Series { dashed: true, ..line }])
    }

    #[test]
    fn a_chart_is_an_svg_element_that_takes_the_colour_around_it() {
        let svg = chart().svg();
        assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("currentColor") && !svg.contains("#010203"));
        assert!(svg.contains("3lc &amp; co") && svg.contains("a &lt; b"));
        assert!(svg.contains("#3B7DD8"));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_chart_file_brings_its_own_colours() {
        let svg = chart().svg_file();
        assert!(svg.find("<style>").unwrap() > svg.find("<svg").unwrap());
        assert_eq!(svg.matches("<svg").count(), 1);
    }

    #[test]
    fn long_labels_are_shortened() {
        assert_eq!(shortened("3lc:s=1.75"), "3lc:s=1.75");
        assert_eq!(shortened("topk:ratio=0.05,select=sampled"), "topk:ratio=0.05,select=s…");
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        let chart = Chart { series: Vec::new(), ..chart() };
        assert!(chart.svg().contains("</svg>"));
    }
}
