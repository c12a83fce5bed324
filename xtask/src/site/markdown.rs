//! Links and titles of Markdown, as far as the pages of this repository have them.

use std::ops::Range;

/// The places of the targets of all links and images of a page, outside code.
pub(super) fn links(page: &str) -> Vec<Range<usize>> {
    let text = without_code(page);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find("](").map(|length| at + length + 2) {
        let length = text[start..].find([')', ' ', '\n']).unwrap_or(text.len() - start);
        found.push(start..start + length);
        at = start + length;
    }
    found
}

/// The text of the first heading.
pub(super) fn title(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix("# "))
}

/// The page with spaces in place of code.
fn without_code(page: &str) -> String {
    let mut text = without_fences(page);
    let mut at = 0;
    while let Some(start) = text[at..].find('`').map(|length| at + length) {
        let quotes = text[start..].len() - text[start..].trim_start_matches('`').len();
        let inside = start + quotes;
        let paragraph = text[inside..].split("\n\n").next().unwrap_or("");
        let end = paragraph.find(&"`".repeat(quotes)).map(|length| inside + length + quotes);
        if let Some(end) = end {
            text.replace_range(start..end, &" ".repeat(end - start));
        }
        at = end.unwrap_or(inside);
    }
    text
}

/// The page with spaces in place of fenced blocks. Places stay the same.
pub(super) fn without_fences(page: &str) -> String {
    let mut is_code = false;
    let mut text = String::with_capacity(page.len());
    for line in page.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_code || is_fence {
            let content = line.trim_end_matches('\n').len();
            text += &" ".repeat(content);
            text += &line[content..];
        } else {
            text += line;
        }
        is_code ^= is_fence;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let page =
            "[a](b.md#c) `[x](y)` ![d\ne](f.svg)\n```\n[x](y)\n```\n[`g`](h \"title\") ``[x`](y)``";
        let found: Vec<&str> = links(page).into_iter().map(|place| &page[place]).collect();
        assert_eq!(found, ["b.md#c", "f.svg", "h"]);
    }

    #[test]
    fn the_title_is_the_first_heading() {
        assert_eq!(title("text\n## No\n# The `none` of it\n"), Some("The `none` of it"));
    }
}
