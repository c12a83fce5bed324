//! Named points with their intervals: quality against cost, a band of what is allowed, and the
//! front.

use maud::{Markup, html};

use super::axis::{Axis, Scale};
use super::chart::Point;
use super::figure::{Drawing, Figure, WIDE, lines, pixels, text};
use super::frame::{Axes, Frame};
use super::labels::{CHARACTER, LINE, wrapped};
use super::places::{Places, Rectangle};
use super::style::Style;
use super::unit::Unit;

/// The height of a row of the legend, in pixels.
const ROW: f64 = LINE + 4.0;

/// The colour of the band.
const BAND: &str = "#009E73";

/// A named point.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Its place; `low` and `high` are the ends of its interval.
    pub point: Point,
    /// The number of its colour and shape.
    pub colour: usize,
    /// Whether no other point has both a better quality and a lower cost.
    pub on_front: bool,
}

/// A range of the vertical axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// What it is.
    pub name: String,
}

/// A chart of named points.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    /// The title.
    pub title: String,
    /// The horizontal axis: label, scale.
    pub x: (String, Scale),
    /// The unit of the horizontal axis.
    pub unit: Unit,
    /// The label of the vertical axis.
    pub y: String,
    /// The points.
    pub marks: Vec<Mark>,
    /// What is allowed, if there is a limit.
    pub band: Option<Band>,
}

impl Figure for Scatter {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let front: Vec<&str> = self.front().into_iter().map(|mark| &*mark.name).collect();
        format!("Points of {} over {}. On the front: {}.", self.y, self.x.0, front.join(", "))
    }

    fn draw(&self, width: f64) -> Drawing {
        let plot = Frame::height((0.62 * width).min(320.0));
        let frame = Frame::new(self.axes(), width, plot, 2.0 * CHARACTER);
        let legend = self.legend();
        let body = html! {
            @if let Some(band) = &self.band { (draw_band(&frame, band)) }
            (frame.draw())
            path class="front" d=(self.steps(&frame)) fill="none" stroke="currentColor"
                stroke-width="1.5" stroke-dasharray="5 4" stroke-opacity="0.7" {}
            @for mark in &self.marks { (self.draw_mark(&frame, mark)) }
            (self.names(&frame))
            @for (at, row) in legend.iter().enumerate() {
                g transform={ "translate(4 " (pixels(plot + ROW * at as f64)) ")" } { (row) }
            }
        };
        Drawing { width, height: plot + ROW * legend.len() as f64 + 2.0, body }
    }

    fn rescaled(&self) -> Option<Box<dyn Figure>> {
        let positive = self.marks.iter().all(|mark| mark.point.x > 0.0);
        let x = (self.x.0.clone(), self.x.1.other());
        (positive && !self.marks.is_empty())
            .then(|| -> Box<dyn Figure> { Box::new(Self { x, ..self.clone() }) })
    }
}

impl Scatter {
    fn axes(&self) -> Axes<'_> {
        let band = self.band.iter().flat_map(|band| [band.low, band.high]);
        let marks = self.marks.iter().map(|mark| mark.point);
        let values = marks.clone().flat_map(|p| [p.y, p.low, p.high]).chain(band);
        Axes {
            x: Axis::around(self.x.1, self.unit, marks.map(|point| point.x)),
            y: Axis::around(Scale::Linear, Unit::Number, values),
            x_label: &self.x.0,
            y_label: &self.y,
        }
    }

    /// The points on the front, from left to right.
    fn front(&self) -> Vec<&Mark> {
        let mut front: Vec<&Mark> = self.marks.iter().filter(|mark| mark.on_front).collect();
        front.sort_by(|a, b| a.point.x.total_cmp(&b.point.x));
        front
    }

    /// The best quality for each cost: constant from one point of the front to the next.
    fn steps(&self, frame: &Frame<'_>) -> String {
        let mut path = String::new();
        for mark in self.front() {
            let (x, y) = (pixels(frame.x(mark.point.x)), pixels(frame.y(mark.point.y)));
            path += &if path.is_empty() { format!("M{x} {y}") } else { format!("H{x}V{y}") };
        }
        path
    }

    fn draw_mark(&self, frame: &Frame<'_>, mark: &Mark) -> Markup {
        let Mark { name, point, colour, .. } = mark;
        let style = Style(*colour);
        let (x, y) = (frame.x(point.x), frame.y(point.y));
        let [low, high] = [point.low, point.high].map(|end| frame.y_within(end));
        let ends = match point.low < point.high {
            true => format!(
                " [{} to {}]",
                Unit::Number.exact(point.low),
                Unit::Number.exact(point.high)
            ),
            false => String::new(),
        };
        let value = format!("{}: {}{ends}", self.unit.exact(point.x), Unit::Number.exact(point.y));
        html! {
            g class="series" data-name=(name) data-values=(value) stroke=(style.colour())
                fill=(style.colour()) {
                polyline points=(format!("{},{}", pixels(x), pixels(y))) fill="none" {}
                @if point.low < point.high { (interval(x, low, high)) }
                path class="markers" d=(style.marker(x, y)) stroke="none" {}
            }
        }
    }

    /// The names, those on the front first, where they hide least. Other names are left out if they
    /// would hide one.
    fn names(&self, frame: &Frame<'_>) -> Markup {
        let at = |mark: &Mark| (frame.x(mark.point.x), frame.y(mark.point.y));
        let mut places = self.places(frame);
        let most = if frame.right < WIDE / 2.0 { 16 } else { 30 };
        let mut order: Vec<&Mark> = self.marks.iter().collect();
        order.sort_by_key(|mark| !mark.on_front);
        html! {
            @for mark in order {
                @let name = wrapped(&mark.name, most);
                @let place = match mark.on_front {
                    true => Some(places.place_anyway(at(mark), &name)),
                    false => places.place(at(mark), &name),
                };
                @if let Some(place) = place {
                    g class="series" data-name=(mark.name)
                        font-weight=[mark.on_front.then_some("600")] {
                        (lines(place.left, place.top + 11.0, "start", &name))
                    }
                }
            }
        }
    }

    /// The places for names, beside the markers, intervals and lines.
    fn places(&self, frame: &Frame<'_>) -> Places {
        let mut taken = self.front_lines(frame);
        for Mark { point, .. } in &self.marks {
            let (x, y) = (frame.x(point.x), frame.y(point.y));
            let [top, bottom] = [point.high, point.low].map(|end| frame.y_within(end));
            taken.push(Rectangle::around(x, y, 5.0, 5.0));
            taken.push(Rectangle { left: x - 2.0, right: x + 2.0, top, bottom });
        }
        let within = Rectangle {
            left: frame.left + 2.0,
            right: frame.right + CHARACTER,
            top: frame.top,
            bottom: frame.bottom - 2.0,
        };
        Places { within, taken, names: Vec::new() }
    }

    /// The lines of the front, as narrow rectangles.
    fn front_lines(&self, frame: &Frame<'_>) -> Vec<Rectangle> {
        let at = |mark: &Mark| (frame.x(mark.point.x), frame.y(mark.point.y));
        let places: Vec<(f64, f64)> = self.front().into_iter().map(at).collect();
        let step = |pair: &[(f64, f64)]| {
            let [(x, y), (right, next)] = [pair[0], pair[1]];
            let (top, bottom) = (y.min(next), y.max(next));
            [
                Rectangle { left: x, right, top: y - 2.0, bottom: y + 2.0 },
                Rectangle { left: right - 2.0, right: right + 2.0, top, bottom },
            ]
        };
        places.windows(2).flat_map(step).collect()
    }

    /// The rows of the legend, drawn at the origin.
    fn legend(&self) -> Vec<Markup> {
        let band = self.band.as_ref().map(|band| {
            html! {
                rect width="22" height="12" y="1" fill=(BAND) fill-opacity="0.22" {}
                (text(30.0, 11.5, "start", &band.name))
            }
        });
        let front = (self.front().len() > 1).then(|| {
            html! {
                path d="M0 7H22" stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 4"
                    stroke-opacity="0.7" {}
                (text(30.0, 11.5, "start", "front (bold): no other is better and lower"))
            }
        });
        band.into_iter().chain(front).collect()
    }
}

fn draw_band(frame: &Frame<'_>, band: &Band) -> Markup {
    let (top, bottom) = (frame.y(band.high), frame.y(band.low));
    html! {
        rect class="band" x=(pixels(frame.left)) y=(pixels(top))
            width=(pixels(frame.right - frame.left)) height=(pixels(bottom - top))
            fill=(BAND) fill-opacity="0.22" {}
    }
}

/// An interval as a bar with ends.
fn interval(x: f64, low: f64, high: f64) -> Markup {
    let [left, right, low, high] = [x - 4.0, x + 4.0, low, high].map(pixels);
    let x = pixels(x);
    let d = format!("M{x} {low}V{high}M{left} {low}H{right}M{left} {high}H{right}");
    html! { path class="bars" d=(d) fill="none" stroke-width="1.5" {} }
}

#[cfg(test)]
mod tests {
    use super::super::figure::NARROW;
    use super::*;

    fn mark(name: &str, (x, y): (f64, f64), on_front: bool) -> Mark {
        let point = Point { x, y, low: y - 0.1, high: y + 0.1 };
        Mark { name: name.to_owned(), point, colour: 1, on_front }
    }

    fn scatter() -> Scatter {
        Scatter {
            title: "end".to_owned(),
            x: ("bytes".to_owned(), Scale::Log),
            unit: Unit::Bytes,
            y: "points".to_owned(),
            marks: vec![
                mark("none", (1e6, 0.0), true),
                mark("topk", (2e5, -2.0), false),
                mark("3lc", (1e5, -0.3), true),
            ],
            band: Some(Band { low: -0.5, high: 0.0, name: "0.5 points".to_owned() }),
        }
    }

    #[test]
    fn points_have_names_intervals_and_a_front() {
        let scatter = scatter();
        let svg = scatter.svg(NARROW).into_string();
        assert_eq!(svg.matches("class=\"bars\"").count(), 3);
        assert!(svg.contains("data-values=\"100\u{a0}kB: -0.3 [-0.4 to -0.2]\""), "{svg}");
        assert!(svg.contains("class=\"band\"") && svg.contains(">0.5 points</text>"));
        assert_eq!(svg.matches("font-weight=\"600\"").count(), 2);
        let names: Vec<&str> = scatter.front().iter().map(|mark| &*mark.name).collect();
        assert_eq!(names, ["3lc", "none"]);
        // Constant, then up: one step.
        let frame = Frame::new(scatter.axes(), NARROW, 300.0, 0.0);
        let path = scatter.steps(&frame);
        assert_eq!((path.matches('H').count(), path.matches('V').count()), (1, 1), "{path}");
    }

    #[test]
    fn the_other_scale_is_linear() {
        let other = scatter().rescaled().unwrap();
        assert!(other.svg(NARROW).into_string().contains("<title>end</title>"));
        let none = Scatter { marks: Vec::new(), ..scatter() };
        assert!(none.rescaled().is_none() && none.svg(NARROW).into_string().contains("</svg>"));
    }
}
