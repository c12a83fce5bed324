//! How lines and points differ: by colour, by dashes and by the shape of their markers. No two have
//! all three in common, however many there are.

use std::fmt::Write;

/// The colours of Okabe and Ito, which people with any form of colour blindness can tell apart:
/// without yellow, which cannot be seen on white, and with the colour of the text in place of
/// black. The first is for the baseline.
const COLOURS: [&str; 7] =
    ["currentColor", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];

/// Half of a marker's size, in pixels.
const HALF: f64 = 4.0;

/// The look of the series with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style(pub(super) usize);

impl Style {
    /// Its colour.
    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.0 % COLOURS.len()]
    }

    /// How often all colours were used before.
    fn tier(self) -> usize {
        self.0 / COLOURS.len()
    }

    /// The dashes of its line; `None` for a solid one. A second line of the same series is dashed.
    pub(super) fn dashes(self, second: bool) -> Option<String> {
        let (stroke, dot) = match (second, self.tier()) {
            (false, 0) => return None,
            (false, _) => ("14 3", " 2 3"),
            (true, _) => ("5 4", " 2 4"),
        };
        Some(stroke.to_owned() + &dot.repeat(self.tier()))
    }

    /// Its marker about a point, as the data of a path.
    pub(super) fn marker(self, x: f64, y: f64) -> String {
        let shape = SHAPES[(self.0 + self.tier()) % SHAPES.len()];
        let corner = |(across, down): &(f64, f64)| (x + HALF * across, y + HALF * down);
        let mut path = String::new();
        for (at, (x, y)) in shape.iter().map(corner).enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            write!(path, "{command}{x:.1} {y:.1}").expect("a string takes all text");
        }
        path + "Z"
    }
}

/// The corners of markers, in units of half their size.
const SHAPES: [&[(f64, f64)]; 7] =
    [&OCTAGON, &SQUARE, &TRIANGLE, &DIAMOND, &UPSIDE_DOWN, &PLUS, &CROSS];
const OCTAGON: [(f64, f64); 8] = [
    (-0.4, -0.95),
    (0.4, -0.95),
    (0.95, -0.4),
    (0.95, 0.4),
    (0.4, 0.95),
    (-0.4, 0.95),
    (-0.95, 0.4),
    (-0.95, -0.4),
];
const SQUARE: [(f64, f64); 4] = [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)];
const TRIANGLE: [(f64, f64); 3] = [(0.0, -1.1), (1.1, 0.85), (-1.1, 0.85)];
const DIAMOND: [(f64, f64); 4] = [(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)];
const UPSIDE_DOWN: [(f64, f64); 3] = [(0.0, 1.1), (1.1, -0.85), (-1.1, -0.85)];
const PLUS: [(f64, f64); 12] = [
    (-0.35, -1.1),
    (0.35, -1.1),
    (0.35, -0.35),
    (1.1, -0.35),
    (1.1, 0.35),
    (0.35, 0.35),
    (0.35, 1.1),
    (-0.35, 1.1),
    (-0.35, 0.35),
    (-1.1, 0.35),
    (-1.1, -0.35),
    (-0.35, -0.35),
];
const CROSS: [(f64, f64); 12] = [
    (-1.05, -0.6),
    (-0.6, -1.05),
    (0.0, -0.45),
    (0.6, -1.05),
    (1.05, -0.6),
    (0.45, 0.0),
    (1.05, 0.6),
    (0.6, 1.05),
    (0.0, 0.45),
    (-0.6, 1.05),
    (-1.05, 0.6),
    (-0.45, 0.0),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_series_look_the_same() {
        let looks: BTreeSet<_> = (0..100)
            .map(Style)
            .flat_map(|one| [false, true].map(|second| (one, one.dashes(second))))
            .map(|(one, dashes)| (one.colour(), dashes))
            .collect();
        assert_eq!(looks.len(), 200);
        let markers: BTreeSet<_> =
            (0..49).map(Style).map(|one| (one.colour(), one.marker(0.0, 0.0))).collect();
        assert_eq!(markers.len(), 49);
    }

    #[test]
    fn colours_differ_and_none_is_yellow() {
        assert_eq!(COLOURS.iter().collect::<BTreeSet<_>>().len(), COLOURS.len());
        assert!(!COLOURS.contains(&"#F0E442"));
    }
}
