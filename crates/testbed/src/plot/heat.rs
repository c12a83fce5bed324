//! Heat maps as SVG: one coloured cell for each pair of two settings.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::{Area, Drawn, Figure, INK, svg};

/// Pixels of a cell, and of the margins for labels.
const CELL: (i32, i32) = (92, 46);
const LEFT: i32 = 92;
const TOP: i32 = 64;
const BOTTOM: i32 = 40;

/// The colours of the least and of the greatest value.
const LOW: (f64, f64, f64) = (253.0, 231.0, 136.0);
const HIGH: (f64, f64, f64) = (78.0, 44.0, 140.0);

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

    fn draw(&self, root: &Area<'_>) -> Drawn {
        let ink = ("sans-serif", 13, &INK).into_text_style(root);
        let middle = ink.pos(Pos::new(HPos::Center, VPos::Center));
        let width = LEFT + CELL.0 * self.columns.1.len() as i32;
        let heading = ("sans-serif", 18, &INK).into_text_style(root);
        root.draw(&Text::new(self.title.clone(), (8, 8), heading))?;
        let (across, down) = (&self.columns.0, &self.rows.0);
        let below = TOP + CELL.1 * self.rows.1.len() as i32 + BOTTOM / 2;
        root.draw(&Text::new(across.clone(), ((LEFT + width) / 2, below), middle.clone()))?;
        root.draw(&Text::new(down.clone(), (LEFT / 2, TOP - 14), middle.clone()))?;
        for (at, label) in self.columns.1.iter().enumerate() {
            let x = LEFT + CELL.0 * at as i32 + CELL.0 / 2;
            root.draw(&Text::new(label.clone(), (x, TOP - 14), middle.clone()))?;
        }
        for (at, (label, values)) in self.rows.1.iter().zip(&self.values).enumerate() {
            let y = TOP + CELL.1 * at as i32;
            let beside = (LEFT / 2, y + CELL.1 / 2);
            root.draw(&Text::new(label.clone(), beside, middle.clone()))?;
            for (column, value) in values.iter().enumerate() {
                let Some(value) = *value else { continue };
                let x = LEFT + CELL.0 * column as i32;
                let place = self.place(value);
                let corners = [(x + 1, y + 1), (x + CELL.0 - 1, y + CELL.1 - 1)];
                root.draw(&Rectangle::new(corners, colour(place).filled()))?;
                let text = if place < 0.5 { RGBColor(0x22, 0x22, 0x22) } else { WHITE };
                let style = ("sans-serif", 13, &text)
                    .into_text_style(root)
                    .pos(Pos::new(HPos::Center, VPos::Center));
                let centre = (x + CELL.0 / 2, y + CELL.1 / 2);
                root.draw(&Text::new((self.show)(value), centre, style))?;
            }
        }
        Ok(())
    }
}

impl Figure for HeatMap {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        let width = LEFT + CELL.0 * self.columns.1.len() as i32 + 8;
        let height = TOP + CELL.1 * self.rows.1.len() as i32 + BOTTOM;
        svg((width.max(420) as u32, height as u32), |root| self.draw(root))
    }
}

fn colour(place: f64) -> RGBColor {
    let mix = |low: f64, high: f64| (low + (high - low) * place).round() as u8;
    RGBColor(mix(LOW.0, HIGH.0), mix(LOW.1, HIGH.1), mix(LOW.2, HIGH.2))
}

#[cfg(test)]
mod tests {
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
        let svg = map.svg();
        for part in ["1 %", "10 %", "100 %", "delay", "sparsity", "#FDE788", "#4E2C8C"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(map.svg_file().contains("<style>"));
    }
}
