//! Tables of a page. In a narrow place, on a screen or on paper, each row becomes a card with the
//! heads beside the cells, so no column is cut off.

use maud::{Markup, html};

use crate::table::Table;

/// Classes of tables: the most columns, and the width in rem below which rows are cards.
const CLASSES: [(&str, usize, u32); 5] =
    [("few", 4, 24), ("some", 7, 38), ("many", 10, 43), ("more", 13, 60), ("most", usize::MAX, 76)];

/// A table with a caption.
pub(super) fn table(caption: &str, table: &Table) -> Markup {
    let class = CLASSES.iter().find(|(_, most, _)| table.head.len() <= *most);
    let class = format!("table {}", class.map_or("most", |(class, ..)| class));
    html! {
        div class=(class) {
            table class=[(!table.has_numbers()).then_some("text")] {
                caption { (caption) }
                thead { tr { @for head in &table.head { (heading(head, "col")) } } }
                tbody { @for row in &table.rows { (line(&table.head, row)) } }
            }
        }
    }
}

fn line(heads: &[String], row: &[String]) -> Markup {
    let (first, rest) = row.split_first().map_or((None, row), |(first, rest)| (Some(first), rest));
    html! {
        tr {
            @if let Some(first) = first { (heading(first, "row")) }
            @for (head, cell) in heads.iter().skip(1).zip(rest) {
                td data-label=(head) { (breakable(cell)) }
            }
        }
    }
}

/// The head of a column or of a row; an empty one is no head.
fn heading(text: &str, scope: &str) -> Markup {
    match text {
        "" => html! { td {} },
        text => html! { th scope=(scope) { (breakable(text)) } },
    }
}

/// Text that may be broken where the parameters of a compressor begin, but not before a unit.
fn breakable(text: &str) -> Markup {
    let whole = with_units(text);
    let mut parts = whole.split_inclusive([':', ',']).peekable();
    html! {
        @while let Some(part) = parts.next() {
            (part)
            @if parts.peek().is_some() { wbr; }
        }
    }
}

/// Text with no-break spaces between numbers and units, which are at most three letters long, and
/// after signs.
fn with_units(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let is_unit = |word: &str| {
        let letters = word.trim_end_matches([',', ')']);
        letters == "%" || letters.len() <= 4 && letters.ends_with(['s', 'B'])
    };
    let mut joined = String::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        let after_number = before.ends_with(|end: char| end.is_ascii_digit());
        match at {
            0 => {}
            _ if after_number && is_unit(word) || before == "±" => joined.push('\u{a0}'),
            _ => joined.push(' '),
        }
        joined += word;
    }
    joined
}

/// The style of cards, for each class of tables.
pub(super) fn cards() -> String {
    const CARDS: &str = include_str!("cards.css");
    let of_class = |(class, _, width): &(&str, usize, u32)| {
        CARDS.replace("WIDTH", &format!("{width}rem")).replace(".CLASS", &format!(".{class}"))
    };
    CLASSES.iter().map(of_class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_heads_and_labels() {
        let mut content = Table::new(["", "bits/s"]);
        content.push(["topk:ratio=0.1,every=2", "<1>"]);
        let html = table("a & b", &content).into_string();
        for part in [
            "<caption>a &amp; b</caption>",
            "<tr><td></td><th scope=\"col\">bits/s</th></tr>",
            "<th scope=\"row\">topk:<wbr>ratio=0.1,<wbr>every=2</th>",
            "<td data-label=\"bits/s\">&lt;1&gt;</td>",
            "class=\"table few\"",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn numbers_keep_their_units() {
        for (text, expected) in [
            ("42.7 MB", "42.7_MB"),
            ("642 µs", "642_µs"),
            ("10.7 s (1.00×)", "10.7_s (1.00×)"),
            ("52.23 ± 2.71 % [50.15–55.30]", "52.23 ±_2.71_% [50.15–55.30]"),
            ("3 seeds and none", "3 seeds and none"),
        ] {
            assert_eq!(with_units(text).replace('\u{a0}', "_"), expected);
        }
    }

    #[test]
    fn every_class_has_its_cards() {
        let cards = cards();
        for (class, _, width) in CLASSES {
            assert!(cards.contains(&format!("width: {width}rem")) && cards.contains(class));
        }
        assert!(!cards.contains("CLASS") && !cards.contains("WIDTH"));
    }
}
