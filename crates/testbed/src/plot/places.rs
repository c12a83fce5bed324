//! Places for the names of points.

use super::labels::{LINE, width};

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rectangle {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Rectangle {
    /// Half as wide as `across`, and half as high as `down`, on each side of a point.
    pub(super) fn around(x: f64, y: f64, across: f64, down: f64) -> Self {
        Self { left: x - across, right: x + across, top: y - down, bottom: y + down }
    }

    /// The area that two rectangles have in common.
    fn common(&self, other: &Self) -> f64 {
        let across = self.right.min(other.right) - self.left.max(other.left);
        let down = self.bottom.min(other.bottom) - self.top.max(other.top);
        across.max(0.0) * down.max(0.0)
    }

    /// How much of it is outside of another rectangle.
    fn outside(&self, other: &Self) -> f64 {
        (self.right - self.left) * (self.bottom - self.top) - self.common(other)
    }
}

/// The places of names in a plot.
#[derive(Debug)]
pub(super) struct Places {
    /// Where names may be.
    pub(super) within: Rectangle,
    /// What they hide as little of as possible.
    pub(super) taken: Vec<Rectangle>,
    /// The names placed so far.
    pub(super) names: Vec<Rectangle>,
}

impl Places {
    /// Finds the position next to a point at which its name overlaps the fewest points and lines.
    /// `None` if the name would overlap another name there, or reach beyond the plot.
    pub(super) fn place(&mut self, point: (f64, f64), name: &[String]) -> Option<Rectangle> {
        let best = self.best(point, name);
        let is_free = self.names.iter().all(|other| best.common(other) == 0.0)
            && best.outside(&self.within) < 1e-6;
        is_free.then(|| self.take(best))
    }

    /// The same, whatever it hides.
    pub(super) fn place_anyway(&mut self, point: (f64, f64), name: &[String]) -> Rectangle {
        let best = self.best(point, name);
        self.take(best)
    }

    fn take(&mut self, place: Rectangle) -> Rectangle {
        self.names.push(place);
        place
    }

    fn best(&self, (x, y): (f64, f64), name: &[String]) -> Rectangle {
        let (half, high) = (width(name) / 2.0, LINE * name.len() as f64 / 2.0);
        let at = |across: f64, down: f64| {
            Rectangle::around(x + across * (half + 8.0), y + down * (high + 4.0), half, high)
        };
        // Nearer places first; of equal ones the first is taken.
        let rows = [0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 3.0];
        let places = rows.into_iter().flat_map(|down| [1.0, -1.0, 0.0].map(|over| at(over, down)));
        let cost = |place: &Rectangle| {
            let hidden =
                |others: &[Rectangle]| others.iter().map(|one| place.common(one)).sum::<f64>();
            hidden(&self.taken) + 10.0 * (hidden(&self.names) + place.outside(&self.within))
        };
        places.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_else(|| at(1.0, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_avoid_each_other_and_the_edges() {
        let within = Rectangle { left: 0.0, right: 200.0, top: 0.0, bottom: 100.0 };
        let mut places = Places { within, taken: Vec::new(), names: Vec::new() };
        let name = ["name".to_owned()];
        let mut place = |x: f64, y: f64| places.place((x, y), &name);
        let first = place(50.0, 50.0).unwrap();
        assert!(first.left > 50.0 && first.top < 50.0 && first.bottom > 50.0, "{first:?}");
        let second = place(50.0, 50.0).unwrap();
        assert_eq!(first.common(&second), 0.0);
        let edge = place(198.0, 20.0).unwrap();
        assert!(edge.outside(&within) < 1e-6 && edge.right < 198.0, "{edge:?}");
        // One point has room for no more than its places.
        let shown = (0..30).filter(|_| place(50.0, 50.0).is_some()).count();
        assert!(shown < 20, "{shown}");
        assert!(places.place_anyway((50.0, 50.0), &name).left < 200.0);
    }
}
