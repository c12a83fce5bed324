//! Heat maps: one coloured cell for each pair of two settings.

use maud::{Markup, html};

use super::figure::{Drawing, Figure, pixels, text};
use super::labels::{CHARACTER, LINE};

/// Heights in pixels: of a row of cells, and of the labels above and below them.
const CELL: f64 = 38.0;
const ABOVE: f64 = 40.0;
const BELOW: f64 = 26.0;

/// The most pixels of a cell's width.
const WIDEST: f64 = 96.0;

/// The colours of the least and of the greatest value, which also differ in lightness.
const LOW: [f64; 3] = [253.0, 231.0, 136.0];
const HIGH: [f64; 3] = [78.0, 44.0, 140.0];

/// A table of values as colours. Missing values are empty cells.
#[derive(Debug, Clone)]
pub struct HeatMap {
    /// The title.
    pub title: String,
    /// The label of the columns, and of each column.
    pub columns: (String, Vec<String>),
    /// The label of the rows, and of each row.
    pub rows: (String, Vec<String>),
    /// Row after row, the values of its columns.
    pub values: Vec<Vec<Option<f64>>>,
    /// Formats a value for its cell.
    pub show: fn(f64) -> String,
}

impl HeatMap {
    /// Where a value lies between the least and the greatest, on a logarithmic scale.
    fn place(&self, value: f64) -> f64 {
        let all = || self.values.iter().flatten().flatten().map(|value| value.max(1e-12).ln());
        let (least, greatest) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
        let range = greatest - least;
        if range > 0.0 { (value.max(1e-12).ln() - least) / range } else { 0.0 }
    }

    /// A cell at the origin.
    fn cell(&self, value: f64, width: f64) -> Markup {
        let place = self.place(value);
        let ink = if place < 0.5 { "#222222" } else { "#FFFFFF" };
        html! {
            rect width=(pixels(width - 2.0)) height=(CELL - 2.0) fill=(colour(place)) {}
            text x=(pixels(width / 2.0 - 1.0)) y=(CELL / 2.0 + 3.5) text-anchor="middle" fill=(ink) {
                ((self.show)(value))
            }
        }
    }
}

impl Figure for HeatMap {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let values = self.values.iter().flatten().flatten().copied();
        let (least, greatest) = values
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        format!(
            "Values by {} and {}, from {} to {}.",
            self.rows.0,
            self.columns.0,
            (self.show)(least),
            (self.show)(greatest)
        )
    }

    fn draw(&self, width: f64) -> Drawing {
        let longest = self.rows.1.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        let left = CHARACTER * longest as f64 + 14.0;
        let cell = ((width - left) / self.columns.1.len().max(1) as f64).min(WIDEST);
        let bottom = ABOVE + CELL * self.rows.1.len() as f64;
        let middle = |at: usize| left + cell * (at as f64 + 0.5);
        let across = left + cell * self.columns.1.len() as f64 / 2.0;
        let body = html! {
            (text(2.0, 12.0, "start", &self.rows.0))
            (text(across, bottom + LINE + 4.0, "middle", &self.columns.0))
            @for (at, label) in self.columns.1.iter().enumerate() {
                (text(middle(at), ABOVE - 6.0, "middle", label))
            }
            @for (at, (label, values)) in self.rows.1.iter().zip(&self.values).enumerate() {
                @let y = ABOVE + CELL * at as f64;
                (text(left - 8.0, y + CELL / 2.0 + 3.5, "end", label))
                @for (column, value) in values.iter().enumerate() {
                    @if let Some(value) = *value {
                        g transform=(format!(
                            "translate({} {})", pixels(left + cell * column as f64), pixels(y)
                        )) { (self.cell(value, cell)) }
                    }
                }
            }
        };
        Drawing { width, height: bottom + BELOW, body }
    }
}

/// The colour of a place from 0 to 1.
fn colour(place: f64) -> String {
    let mix = |(low, high): (f64, f64)| (low + (high - low) * place).round() as u8;
    let [red, green, blue] = [0, 1, 2].map(|part| mix((LOW[part], HIGH[part])));
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::super::figure::NARROW;
    use super::*;

    #[test]
    fn cells_have_their_values_and_colours_between_the_extremes() {
        let map = HeatMap {
            title: "error".to_owned(),
            columns: ("delay".to_owned(), vec!["1".to_owned(), "10".to_owned()]),
            rows: ("sparsity".to_owned(), vec!["1".to_owned(), "0.1".to_owned()]),
            values: vec![vec![Some(1.0), Some(10.0)], vec![Some(100.0), None]],
            show: |value| format!("{value:.0} %"),
        };
        assert_eq!([map.place(1.0), map.place(10.0), map.place(100.0)], [0.0, 0.5, 1.0]);
        let svg = map.svg(NARROW).into_string();
        for part in [">1 %<", ">10 %<", ">100 %<", "delay", "sparsity", "#FDE788", "#4E2C8C"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(map.description().contains("from 1 % to 100 %"));
    }
}
