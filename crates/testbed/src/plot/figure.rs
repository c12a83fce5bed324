//! The common part of all kinds of figures: SVG, and the colours.

use gradwire::printable_lines;
use plotters::coord::Shift;
use plotters::prelude::*;

/// The colour of text and axes; in the SVG, the colour of the text around the chart replaces it.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
const INK_AS_WRITTEN: &str = "#010203";

/// Colours that are distinct on light and on dark backgrounds; the first is for the baseline.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0x3b, 0x7d, 0xd8),
    RGBColor(0xf2, 0x8e, 0x2b),
    RGBColor(0x2f, 0x9e, 0x54),
    RGBColor(0xe1, 0x57, 0x59),
    RGBColor(0x9b, 0x6b, 0xd3),
    RGBColor(0x9c, 0x75, 0x5f),
    RGBColor(0x1f, 0xa8, 0xb0),
    RGBColor(0xd3, 0x72, 0xb4),
    RGBColor(0xb8, 0xa0, 0x1e),
    RGBColor(0x6a, 0x87, 0x3a),
    RGBColor(0x4c, 0x9c, 0xe0),
];

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A figure that can be shown on a page or written to a file of its own.
pub trait Figure {
    /// The title.
    fn title(&self) -> &str;

    /// The figure as an `<svg>` element. Text and axes take the colour of the text around it.
    fn svg(&self) -> String;

    /// The figure as a file of its own, readable on light and dark backgrounds.
    fn svg_file(&self) -> String {
        const STYLE: &str = "<style>svg{color:#222}\
             @media(prefers-color-scheme:dark){svg{color:#ddd}}</style>\n";
        let svg = self.svg();
        let start = svg.find("<svg").and_then(|at| svg[at..].find('>').map(|end| at + end + 1));
        let (head, body) = svg.split_at(start.expect("plotters writes an svg element"));
        format!("{head}\n{STYLE}{}", body.trim_start())
    }
}

/// An `<svg>` element of this size in pixels, drawn by `draw`.
pub(super) fn svg(size: (u32, u32), draw: impl Fn(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root).and_then(|()| root.present()).expect("a string takes all text");
    }
    // Labels may be names from files.
    printable_lines(svg.replace(INK_AS_WRITTEN, "currentColor")).to_string()
}

/// The colour with this number; numbers beyond the last begin again.
pub(super) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_shown_and_not_obeyed() {
        let label = |root: &Area<'_>| {
            let style = ("sans-serif", 13).into_font().color(&INK);
            root.draw(&Text::new("a\u{202e}b\u{1b}<", (5, 5), style))
        };
        let svg = svg((100, 50), label);
        assert!(svg.contains("a\\u{202e}b\\u{1b}&lt;"), "{svg}");
        assert!(svg.lines().count() > 1 && !svg.contains("\\n"), "{svg}");
    }
}
