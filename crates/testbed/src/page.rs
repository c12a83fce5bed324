//! A self-contained HTML page of tables and charts, without scripts, fonts or external links.

use std::fmt::Write;

use crate::table::{Table, escape};

const STYLE: &str = include_str!("page.css");

/// An HTML page under construction. Text is escaped as it is added.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with a heading.
    pub fn new(title: &str) -> Self {
        Self { title: escape(title), body: format!("<h1>{}</h1>\n", escape(title)) }
    }

    /// Starts a section.
    pub fn section(&mut self, heading: &str) -> &mut Self {
        self.push(format_args!("<h2>{}</h2>\n", escape(heading)))
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.push(format_args!("<p>{}</p>\n", escape(text)))
    }

    /// Adds short facts: a name and a value each.
    pub fn facts<'a>(&mut self, facts: impl IntoIterator<Item = (&'a str, String)>) -> &mut Self {
        self.body.push_str("<dl>\n");
        for (name, value) in facts {
            let (name, value) = (escape(name), escape(&value));
            self.push(format_args!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
        }
        self.push(format_args!("</dl>\n"))
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) -> &mut Self {
        self.push(format_args!("{}", table.html()))
    }

    /// Adds charts, which are `<svg>` elements, side by side if the window is wide enough.
    pub fn charts(&mut self, charts: impl IntoIterator<Item = String>) -> &mut Self {
        self.body.push_str("<div class=\"charts\">\n");
        for svg in charts {
            self.push(format_args!("<figure>{svg}</figure>\n"));
        }
        self.push(format_args!("</div>\n"))
    }

    /// Adds lines, one below the other.
    pub fn list(&mut self, lines: &[String]) -> &mut Self {
        self.push(format_args!("<ul>\n{}</ul>\n", items(lines)))
    }

    /// Adds remarks in small print, one below the other.
    pub fn notes(&mut self, notes: &[String]) -> &mut Self {
        self.push(format_args!("<ul class=\"notes\">\n{}</ul>\n", items(notes)))
    }

    /// Adds preformatted text.
    pub fn code(&mut self, text: &str) -> &mut Self {
        self.push(format_args!("<pre>{}</pre>\n", escape(text)))
    }

    /// The whole page.
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            self.title, self.body
        )
    }

    fn push(&mut self, html: std::fmt::Arguments<'_>) -> &mut Self {
        self.body.write_fmt(html).expect("a string takes all text");
        self
    }
}

fn items(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_nothing_is_fetched() {
        let mut page = Page::new("a < b");
        page.section("x & y").paragraph("<script>").code("\"quoted\"").notes(&["<i>".to_owned()]);
        page.facts([("k", "<v>".to_owned())]);
        let html = page.html();
        assert!(html.contains("<h1>a &lt; b</h1>") && html.contains("<h2>x &amp; y</h2>"));
        assert!(!html.contains("<script") && !html.contains("<i>") && !html.contains("<v>"));
        assert!(!html.contains("href=") && !html.contains("src=") && !html.contains("url("));
    }
}
