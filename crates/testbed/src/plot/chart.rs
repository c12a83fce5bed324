//! Charts of lines.

use maud::{Markup, html};

use super::axis::{Axis, Scale};
use super::figure::{Drawing, Figure, WIDE, lines, pixels};
use super::frame::{Axes, Frame};
use super::labels::{CHARACTER, LINE, Label, apart, width, wrapped};
use super::style::Style;
use super::unit::Unit;

/// A line with at most this many points has a marker at each; any other has about six.
const MARKED: usize = 12;

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
    /// Its name, at its end; an empty one is left out there.
    pub label: String,
    /// Its points, from left to right.
    pub points: Vec<Point>,
    /// The number of its colour, marker and dashes.
    pub colour: usize,
    /// Whether the line is dashed: the second line of the same colour.
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
    /// The horizontal axis: label, scale.
    pub x: (String, Scale),
    /// The vertical axis: label, scale.
    pub y: (String, Scale),
    /// The units of the horizontal and of the vertical axis.
    pub units: [Unit; 2],
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
        let series = series.into_iter().collect();
        Self { title: title.into(), x, y, units: [Unit::Number; 2], series }
    }

    /// The same chart with a unit of its horizontal axis.
    pub(crate) fn across(self, unit: Unit) -> Self {
        Self { units: [unit, self.units[1]], ..self }
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

    /// The points of a line that the axes can show (not those that are not finite, or not positive
    /// on a logarithmic axis).
    fn shown<'a>(&self, series: &'a Series) -> impl Iterator<Item = &'a Point> {
        let (x, y) = (self.x.1, self.y.1);
        series.points.iter().filter(move |point| x.shows(point.x) && y.shows(point.y))
    }

    /// The name of a line; a second line has the name of the first one of its colour.
    fn name<'a>(&'a self, series: &'a Series) -> &'a str {
        let named = |other: &&Series| other.colour == series.colour && !other.label.is_empty();
        match series.label.as_str() {
            "" => self.series.iter().find(named).map_or("", |first| &first.label),
            label => label,
        }
    }

    fn axes(&self) -> Axes<'_> {
        let points = || self.series.iter().flat_map(|series| self.shown(series));
        Axes {
            x: Axis::around(self.x.1, self.units[0], points().map(|p| p.x)),
            y: Axis::around(self.y.1, self.units[1], points().flat_map(|p| [p.y, p.low, p.high])),
            x_label: &self.x.0,
            y_label: &self.y.0,
        }
    }

    /// Whether all values are positive on one axis.
    fn is_positive(&self, value: fn(&Point) -> f64) -> bool {
        let mut points = self.series.iter().flat_map(|series| &series.points).peekable();
        points.peek().is_some() && points.all(|point| value(point) > 0.0)
    }
}

/// A line as it is drawn: its points, and its name with its place.
struct Line<'a> {
    series: &'a Series,
    points: Vec<&'a Point>,
    name: Vec<String>,
    top: f64,
}

impl Figure for Chart {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let mut names: Vec<&str> = self.series.iter().map(|one| self.name(one)).collect();
        names.dedup();
        format!("Lines of {} over {}: {}.", self.y.0, self.x.0, names.join(", "))
    }

    fn draw(&self, width: f64) -> Drawing {
        let most = if width < WIDE { 14 } else { 30 };
        let mut lines: Vec<Line<'_>> =
            self.series.iter().map(|series| self.line(series, most)).collect();
        let named = |line: &&Line<'_>| !line.name.is_empty();
        let needed: f64 = lines.iter().filter(named).map(Line::height).sum();
        let height = Frame::height((0.5 * width).max(needed + 8.0));
        let frame = Frame::new(self.axes(), width, height, beside(&lines));
        place_names(&mut lines, &frame);
        let body = html! {
            (frame.draw())
            @for line in &lines { (self.draw_line(&frame, line)) }
        };
        Drawing { width, height, body }
    }

    fn rescaled(&self) -> Option<Box<dyn Figure>> {
        let mut other = self.clone();
        match [self.x.1, self.y.1] {
            [Scale::Linear, Scale::Linear] if self.is_positive(|point| point.low) => {
                other.y.1 = Scale::Log;
            }
            [Scale::Linear, Scale::Linear] => return None,
            _ => (other.x.1, other.y.1) = (Scale::Linear, Scale::Linear),
        }
        Some(Box::new(other))
    }
}

impl Chart {
    fn line<'a>(&'a self, series: &'a Series, most: usize) -> Line<'a> {
        let points: Vec<&Point> = self.shown(series).collect();
        let is_named = !series.label.is_empty() && !points.is_empty();
        let name = if is_named { wrapped(&series.label, most) } else { Vec::new() };
        Line { series, points, name, top: 0.0 }
    }

    fn draw_line(&self, frame: &Frame<'_>, line: &Line<'_>) -> Markup {
        let Line { series, points, name, .. } = line;
        let style = Style(series.colour);
        let at = |point: &Point| (frame.x(point.x), frame.y(point.y));
        let places: Vec<String> = points
            .iter()
            .map(|point| at(point))
            .map(|(x, y)| format!("{},{}", pixels(x), pixels(y)))
            .collect();
        let values: Vec<String> = points.iter().map(|point| self.value(point)).collect();
        html! {
            g class="series" data-name=(self.name(series)) data-values=(values.join("|"))
                stroke=(style.colour()) fill=(style.colour()) {
                polyline points=(places.join(" ")) fill="none"
                    stroke-width=(if series.dashed { "1.4" } else { "2" })
                    stroke-dasharray=[style.dashes(series.dashed)] {}
                path class="bars" d=(self.bars(frame, points)) fill="none" {}
                path class="markers" d=(markers(style, points, at)) stroke="none" {}
                @if !name.is_empty() { (self.draw_name(frame, line)) }
            }
        }
    }

    /// The name of a line beside the plot, after a piece of the line, to which the line is led.
    fn draw_name(&self, frame: &Frame<'_>, line: &Line<'_>) -> Markup {
        let Line { series, points, name, top } = line;
        let style = Style(series.colour);
        let middle = top + LINE * name.len() as f64 / 2.0 - 1.0;
        let (end, start) = (frame.right + LEADER - 5.0, frame.right + LEADER - 5.0 - PIECE);
        let near = frame.right - NEAR * (frame.right - frame.left);
        let last = points.last().map(|point| (frame.x(point.x), frame.y(point.y)));
        let leader = last.filter(|(x, _)| *x >= near).map(|(x, y)| {
            let [x, y, start, middle] = [x + 2.0, y, start, middle].map(pixels);
            format!("M{x} {y}L{start} {middle}")
        });
        html! {
            @if let Some(leader) = leader {
                path class="leader" d=(leader) fill="none" stroke-opacity="0.5" {}
            }
            path d=(format!("M{} {}H{}", pixels(start), pixels(middle), pixels(end))) fill="none"
                stroke-width="2" stroke-dasharray=[style.dashes(false)] {}
            path d=(style.marker((start + end) / 2.0, middle)) stroke="none" {}
            g stroke="none" { (lines(frame.right + LEADER, top + 11.0, "start", name)) }
        }
    }

    /// The values of a point, for readers.
    fn value(&self, point: &Point) -> String {
        let [x, y] = self.units;
        let mut text = format!("{}: {}", x.exact(point.x), y.exact(point.y));
        if point.low < point.high {
            text += &format!(" [{} to {}]", y.exact(point.low), y.exact(point.high));
        }
        text
    }

    /// The error bars of a line.
    fn bars(&self, frame: &Frame<'_>, points: &[&Point]) -> String {
        let shown = points.iter().filter(|p| p.low < p.high && self.y.1.shows(p.low));
        let bar = |p: &&Point| {
            let [x, low, high] = [frame.x(p.x), frame.y(p.low), frame.y(p.high)].map(pixels);
            format!("M{x} {low}V{high}")
        };
        shown.map(bar).collect()
    }
}

/// Pixels from the plot to the names of its lines; a piece of the line stands before its name.
const LEADER: f64 = 28.0;
const PIECE: f64 = 20.0;

/// A line that ends within this part of the plot's width from its right edge is led to its name.
const NEAR: f64 = 0.12;

impl Line<'_> {
    fn height(&self) -> f64 {
        LINE * self.name.len() as f64
    }
}

/// The pixels to the right of the plot, for names.
fn beside(lines: &[Line<'_>]) -> f64 {
    let widest = lines.iter().map(|line| width(&line.name)).fold(0.0, f64::max);
    if widest > 0.0 { LEADER + widest } else { CHARACTER }
}

/// Places each name beside the end of its line.
fn place_names(lines: &mut [Line<'_>], frame: &Frame<'_>) {
    let mut named: Vec<&mut Line<'_>> =
        lines.iter_mut().filter(|line| !line.name.is_empty()).collect();
    let label = |line: &&mut Line<'_>| {
        let end = line.points.last().map_or(frame.bottom, |point| frame.y(point.y));
        Label { wanted: end - line.height() / 2.0, height: line.height() }
    };
    let labels: Vec<Label> = named.iter().map(label).collect();
    let tops = apart(&labels, (frame.top, frame.bottom));
    for (line, top) in named.iter_mut().zip(tops) {
        line.top = top;
    }
}

/// The markers of a line: at each point of a short one, else at about six points.
fn markers(style: Style, points: &[&Point], at: impl Fn(&Point) -> (f64, f64)) -> String {
    let stride = if points.len() <= MARKED { 1 } else { points.len().div_ceil(6) };
    let marked = points.iter().step_by(stride).map(|point| at(point));
    marked.map(|(x, y)| style.marker(x, y)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure::NARROW;
    use super::*;

    fn chart() -> Chart {
        let points = [(1.0, 0.0), (10.0, 1.0), (100.0, f64::NAN)];
        let line = Series::new("3lc & co", 1, points.map(|(x, y)| Point::new(x, y)).to_vec());
        let (x, y) = (("seconds", Scale::Log), ("accuracy (%)", Scale::Linear));
        Chart::new("a < b", x, y, [Series { dashed: true, ..line }])
    }

    #[test]
    fn a_chart_names_its_lines_and_takes_the_colour_around_it() {
        let svg = chart().svg(NARROW).into_string();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
        for part in [
            "currentColor",
            "data-name=\"3lc &amp; co\"",
            ">3lc &amp; co</text>",
            "<title>a &lt; b</title>",
            "stroke=\"#0072B2\"",
            "stroke-dasharray=\"5 4\"",
            "data-values=\"1: 0|10: 1\"",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn other_scales_are_linear_unless_all_are() {
        let chart = chart();
        let other = chart.rescaled().unwrap().svg(NARROW).into_string();
        let log = chart.svg(NARROW).into_string();
        assert!(log.contains(">2</text>") && !other.contains(">2</text>"), "{other} {log}");
        let linear = Chart { x: ("steps".to_owned(), Scale::Linear), ..chart };
        // A value of 0 has no logarithm.
        assert!(linear.rescaled().is_none());
    }

    #[test]
    fn a_chart_of_many_lines_is_high_enough_for_their_names() {
        let line =
            |at: usize| Series::new(&format!("compressor {at}"), at, vec![Point::new(1.0, 2.0)]);
        let chart = Chart { series: (0..40).map(line).collect(), ..chart() };
        assert!(chart.draw(NARROW).height > 40.0 * LINE);
        assert!(Chart { series: Vec::new(), ..chart }.svg(NARROW).into_string().contains("</svg>"));
    }
}
