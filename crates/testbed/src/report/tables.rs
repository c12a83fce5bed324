//! Tables of a page. In a narrow place, on a screen or on paper, each row becomes a card with the
//! heads beside the cells, so no column is cut off.

use maud::{Markup, html};

use crate::table::Table;

/// Classes of tables: the most columns, and the width in rem below which rows are cards.
const CLASSES: [(&str, usize, u32); 4] =
    [("few", 4, 24), ("some", 7, 38), ("many", 12, 43), ("most", usize::MAX, 76)];

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

/// Text that may be broken where the parameters of a compressor begin.
fn breakable(text: &str) -> Markup {
    let mut parts = text.split_inclusive([':', ',', '/']).peekable();
    html! {
        @while let Some(part) = parts.next() {
            (part)
            @if parts.peek().is_some() { wbr; }
        }
    }
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
            "<tr><td></td><th scope=\"col\">bits/<wbr>s</th></tr>",
            "<th scope=\"row\">topk:<wbr>ratio=0.1,<wbr>every=2</th>",
            "<td data-label=\"bits/s\">&lt;1&gt;</td>",
            "class=\"table few\"",
        ] {
            assert!(html.contains(part), "{part} in {html}");
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
