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

/// Places a name beside its point, inside `within` and where it hides least of `taken`, to which it
/// is added.
pub(super) fn place(
    (x, y): (f64, f64),
    name: &[String],
    within: Rectangle,
    taken: &mut Vec<Rectangle>,
) -> Rectangle {
    let (half, high) = (width(name) / 2.0, LINE * name.len() as f64 / 2.0);
    let at = |across: f64, down: f64| {
        Rectangle::around(x + across * (half + 8.0), y + down * (high + 4.0), half, high)
    };
    // Nearer places first; of equal ones the first is taken.
    let rows = [0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 3.0, -4.0, 4.0];
    let places = rows.into_iter().flat_map(|down| [1.0, -1.0, 0.0].map(|across| at(across, down)));
    let cost = |place: &Rectangle| {
        let hidden: f64 = taken.iter().map(|other| place.common(other)).sum();
        hidden + 10.0 * place.outside(&within)
    };
    let best = places.min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let best = best.unwrap_or_else(|| at(1.0, 0.0));
    taken.push(best);
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_avoid_each_other_and_the_edges() {
        let within = Rectangle { left: 0.0, right: 200.0, top: 0.0, bottom: 100.0 };
        let mut taken = Vec::new();
        let name = ["name".to_owned()];
        let first = place((50.0, 50.0), &name, within, &mut taken);
        assert!(first.left > 50.0 && first.top < 50.0 && first.bottom > 50.0, "{first:?}");
        let second = place((50.0, 50.0), &name, within, &mut taken);
        assert_eq!(first.common(&second), 0.0);
        let edge = place((198.0, 20.0), &name, within, &mut taken);
        assert!(edge.outside(&within) == 0.0 && edge.right < 198.0, "{edge:?}");
        assert_eq!(taken.len(), 3);
    }
}
