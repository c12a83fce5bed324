//! The common part of all kinds of figures: SVG elements and files.

use gradwire::printable_lines;
use maud::{Markup, PreEscaped, html};

use super::labels::LINE;

/// The width of a figure in a column of a page or of a paper, in pixels. Text has at least 12
/// pixels on the narrowest phones.
pub const NARROW: f64 = 340.0;

/// The width of a figure that fills a page.
pub const WIDE: f64 = 700.0;

/// The size of text, in pixels.
pub(super) const TEXT: f64 = 13.0;

/// A drawing of some size in pixels.
#[derive(Debug, Clone)]
pub struct Drawing {
    /// Its width.
    pub(super) width: f64,
    /// Its height.
    pub(super) height: f64,
    /// Its elements.
    pub(super) body: Markup,
}

/// A figure that can be shown on a page or written to a file of its own. Text and axes have the
/// colour of the text around it.
pub trait Figure {
    /// The title.
    fn title(&self) -> &str;

    /// What it shows, in a sentence, for readers who cannot see it.
    fn description(&self) -> String;

    /// Draws it, without its title.
    fn draw(&self, width: f64) -> Drawing;

    /// The same figure with its logarithmic axes linear, or with a logarithmic axis if it has none;
    /// `None` if its values allow no other scale.
    fn rescaled(&self) -> Option<Box<dyn Figure>> {
        None
    }

    /// The figure as an element of a page, which shows the title.
    fn svg(&self, width: f64) -> Markup {
        let drawing = self.draw(width);
        self.element(&drawing, drawing.height, drawing.body.clone())
    }

    /// The figure as a file of its own with its title, readable on light and dark backgrounds.
    fn svg_file(&self) -> String {
        const STYLE: &str = "svg{color:#222}@media(prefers-color-scheme:dark){svg{color:#ddd}}";
        const TITLE: f64 = 30.0;
        let drawing = self.draw(WIDE);
        let body = html! {
            style { (PreEscaped(STYLE)) }
            text x="4" y="19" font-size="16" font-weight="600" fill="currentColor" { (self.title()) }
            g transform={ "translate(0 " (TITLE) ")" } { (drawing.body) }
        };
        let svg = self.element(&drawing, drawing.height + TITLE, body).into_string();
        printable_lines(svg.replace("><", ">\n<") + "\n").to_string()
    }

    /// An `<svg>` element with the width of a drawing.
    fn element(&self, drawing: &Drawing, height: f64, body: Markup) -> Markup {
        let size = format!("0 0 {:.0} {height:.0}", drawing.width);
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(size) width=(drawing.width)
                height=(format!("{height:.0}")) role="img"
                font-family="system-ui, sans-serif" font-size=(TEXT) {
                title { (self.title()) }
                desc { (self.description()) }
                (body)
            }
        }
    }
}

/// A line of text. `anchor` is `start`, `middle` or `end`.
pub(super) fn text(x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! {
        text x=(pixels(x)) y=(pixels(y)) text-anchor=(anchor) fill="currentColor" { (text) }
    }
}

/// Lines of text; the first has its baseline at `y`.
pub(super) fn lines(x: f64, y: f64, anchor: &str, lines: &[String]) -> Markup {
    html! {
        @for (at, line) in lines.iter().enumerate() { (text(x, y + LINE * at as f64, anchor, line)) }
    }
}

/// A coordinate as SVG writes it, to a tenth of a pixel.
pub(super) fn pixels(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    impl Figure for Named {
        fn title(&self) -> &str {
            self.0
        }

        fn description(&self) -> String {
            format!("About {}.", self.0)
        }

        fn draw(&self, width: f64) -> Drawing {
            Drawing { width, height: 50.0, body: text(1.0, 2.25, "start", self.0) }
        }
    }

    #[test]
    fn names_are_shown_and_not_obeyed() {
        let svg = Named("a\u{202e}b\u{1b}</text><script>").svg_file();
        assert!(svg.contains("a\\u{202e}b\\u{1b}&lt;/text&gt;&lt;script&gt;"), "{svg}");
        assert!(svg.lines().count() > 5 && !svg.contains("<script"), "{svg}");
    }

    #[test]
    fn a_file_has_a_title_and_its_own_colours() {
        let svg = Named("bits").svg_file();
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 700 80\"") && svg.contains("role=\"img\""), "{svg}");
        assert!(svg.contains("<title>bits</title>") && svg.contains("<desc>About bits.</desc>"));
        assert!(svg.contains("<style>") && svg.contains("currentColor"), "{svg}");
        assert!(!Named("bits").svg(NARROW).into_string().contains("<style>"));
    }

    #[test]
    fn coordinates_have_a_tenth_of_a_pixel() {
        assert_eq!([1.0, 2.25, -0.01, 99.96].map(pixels), ["1", "2.2", "-0", "100"]);
    }
}
