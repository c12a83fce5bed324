//! A report as a page: one HTML file with its style and its script. It needs no network, and its
//! policy forbids the browser to use one; no script runs but its own.

use gradwire::printable_lines;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::content::{Answer, Block, Captioned, Report, Section};
use super::tables::{cards, table};
use crate::plot::{Figure, NARROW, WIDE};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of a report. All text is escaped.
pub(crate) fn page(report: &Report) -> String {
    let Report { title, lead, warnings, answer, sections } = report;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(cards())) }
            }
            body {
                main {
                    header {
                        h1 { (title) }
                        @for sentence in lead { p.lead { (sentence) } }
                    }
                    @if !warnings.is_empty() {
                        div.warning { @for warning in warnings { (block(warning)) } }
                    }
                    @if let Some(answer) = answer { (result(answer)) }
                    @for one in sections { (section(one)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Names from files may have control characters.
    printable_lines(page.into_string()).to_string()
}

/// What the page may load and run: its style, and the script with this digest.
fn policy() -> String {
    let digest = base64(&Sha256::digest(SCRIPT));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri \
         'none'; form-action 'none'"
    )
}

/// Bytes in base 64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| -> String {
        let bits =
            (0..3).fold(0, |bits, at| bits << 8 | bytes.get(at).map_or(0, |&b| usize::from(b)));
        let digit = |at: usize| char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
        (0..4).map(|at| if at <= bytes.len() { digit(at) } else { '=' }).collect()
    };
    bytes.chunks(3).map(group).collect()
}

fn result(answer: &Answer) -> Markup {
    let Answer { headline, choices, notes, chart } = answer;
    html! {
        section.answer aria-labelledby="result" {
            h2 #result { "Result" }
            p.headline { (headline) }
            @if let Some(chart) = chart { (large(chart)) }
            @if !choices.is_empty() { (table("The choice for each link", choices)) }
            @if !notes.is_empty() { (block_of_notes(notes)) }
        }
    }
}

/// A figure that fills the page, drawn for wide and for narrow pages.
fn large(Captioned { figure, caption }: &Captioned) -> Markup {
    html! {
        div.charts.large {
            figure {
                figcaption { (figure.title()) }
                @for (class, width) in [("drawing wide", WIDE), ("drawing narrow", NARROW)] {
                    (drawing(&**figure, class, width))
                }
                p.notes { (caption) }
            }
        }
    }
}

fn drawing(figure: &dyn Figure, class: &str, width: f64) -> Markup {
    html! {
        div class=(class) {
            (figure.svg(width))
            @if let Some(other) = figure.rescaled() { template { (other.svg(width)) } }
        }
    }
}

fn section(Section { heading, blocks }: &Section) -> Markup {
    html! {
        section {
            h2 { (heading) }
            @for one in blocks { (block(one)) }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Text(text) => html! { p { (text) } },
        Block::List(lines) => html! { ul { @for line in lines { li { (line) } } } },
        Block::Notes(notes) => block_of_notes(notes),
        Block::Table { caption, table: content } => table(caption, content),
        Block::Charts(figures) => html! {
            div.charts {
                @for figure in figures {
                    figure {
                        figcaption { (figure.title()) }
                        (drawing(&**figure, "drawing", NARROW))
                    }
                }
            }
        },
        Block::Facts(facts) => html! {
            dl { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
        },
        Block::Code(text) => html! { pre tabindex="0" { (text) } },
    }
}

fn block_of_notes(notes: &[String]) -> Markup {
    html! { ul.notes { @for note in notes { li { (note) } } } }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::plot::{Chart, Point, Scale, Series};
    use crate::table::Table;

    fn report(name: &str) -> Report {
        let line = Series::new(name, 1, vec![Point::new(1.0, 2.0), Point::new(2.0, 3.0)]);
        let axis = ("steps", Scale::Linear);
        let chart = || Chart::new(name, axis, axis, [line.clone()]);
        let mut choices = Table::new(["link", "compressor"]);
        choices.push(["1 Gbit/s", name]);
        let text = || name.to_owned();
        Report {
            title: text(),
            lead: vec![text()],
            warnings: vec![Block::Text(text())],
            answer: Some(Answer {
                headline: text(),
                choices: choices.clone(),
                notes: vec![text()],
                chart: Some(Captioned { figure: Rc::new(chart()), caption: text() }),
            }),
            sections: vec![Section::new(
                text(),
                vec![
                    Block::List(vec![text()]),
                    Block::table(text(), choices),
                    Block::charts([chart()]),
                    Block::Facts(vec![("k", text())]),
                    Block::Code(text()),
                ],
            )],
        }
    }

    #[test]
    fn names_are_escaped_everywhere() {
        let page = page(&report("</title><img src=x onerror=\"alert(1)\">\u{202e}&"));
        assert_eq!(page.matches("<script>").count(), 1);
        assert!(!page.contains("<img") && !page.contains("\u{202e}") && page.contains("\\u{202e}"));
        // No attribute ends inside of a name.
        assert!(!page.contains("onerror=\"") && page.contains("onerror=&quot;"));
    }

    #[test]
    fn nothing_is_requested() {
        let page = page(&report("3lc"));
        for part in [" src=", " href=", "url(", "@import", "fetch(", "XMLHttpRequest", "import("] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("default-src 'none'; "));
        // The only address is the name of SVG.
        assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
        for part in ["eval(", "innerHTML", "outerHTML", "document.write", "Function("] {
            assert!(!SCRIPT.contains(part), "{part}");
        }
    }

    #[test]
    fn charts_have_titles_and_tables_captions_and_scopes() {
        let page = page(&report("3lc"));
        // Each chart twice, because it also has logarithmic axes; the large one for two widths.
        assert_eq!(page.matches("<svg").count(), 6);
        for part in ["role=\"img\"", "<title>3lc</title><desc>"] {
            assert_eq!(page.matches(part).count(), 6, "{part}");
        }
        assert_eq!(page.matches("<table").count(), page.matches("<caption>").count());
        assert_eq!(
            (page.matches("scope=\"col\"").count(), page.matches("scope=\"row\"").count()),
            (4, 2)
        );
        assert_eq!(page.matches("<th>").count(), 0);
    }

    /// The test vectors of RFC 4648.
    #[test]
    fn base_64() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
