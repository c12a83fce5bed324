//! Tables for terminals.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as ComfyTable,
    TableStyle, Width,
};

use super::Table;

/// The fewest characters of a line to which a name is broken.
const NAME: usize = 16;

/// A space that does not end a line.
const NO_BREAK: char = '\u{a0}';

impl Table {
    /// For a terminal of this width in characters. Breaks lines of cells between words; if that is
    /// not enough, leaves out optional columns, and names them below, and then breaks words of the
    /// first column. A table may still be wider, if words of other columns are.
    pub fn terminal(&self, width: usize) -> String {
        let (mut narrow, mut left_out) = (self.clone(), Vec::new());
        for &head in self.optional {
            if narrow.least_width() <= width {
                break;
            }
            while let Some(column) = narrow.head.iter().position(|one| one == head) {
                narrow.remove(column);
                left_out.push(head);
            }
        }
        let text = narrow.arranged(width);
        if left_out.is_empty() {
            return text;
        }
        left_out.dedup();
        format!("{text}\nNot shown, for lack of width: {}.", left_out.join(", "))
    }

    /// The width with every column as wide as its longest word, a space on both sides, and a space
    /// between columns.
    fn least_width(&self) -> usize {
        let words: usize = (0..self.head.len()).map(|column| self.longest_word(column)).sum();
        (words + 3 * self.head.len()).saturating_sub(1)
    }

    /// The length of the longest word of a column.
    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| self.glued(column, &row[column]));
        let cells = cells.chain([self.head[column].clone()]);
        cells
            .flat_map(|cell| cell.split(' ').map(|word| word.chars().count()).max())
            .max()
            .unwrap_or(0)
    }

    /// A cell in which spaces that must not end a line are no-break spaces: in a column of numbers,
    /// the spaces after a number, before its unit, and after ±.
    fn glued(&self, column: usize, cell: &str) -> String {
        if !self.numbers || column == 0 {
            return cell.to_owned();
        }
        let mut glued = String::new();
        let mut rest = cell.chars().peekable();
        while let Some(character) = rest.next() {
            let breaks = rest.peek().is_none_or(|next| ['(', '[', '±'].contains(next));
            let keeps = glued.ends_with(|last: char| last.is_ascii_digit() || last == '±');
            glued.push(if character == ' ' && keeps && !breaks { NO_BREAK } else { character });
        }
        glued
    }

    /// All columns, within a width as far as words allow.
    fn arranged(&self, width: usize) -> String {
        let mut table = ComfyTable::new();
        let fixed = |length: usize| Width::Fixed(u16::try_from(length).unwrap_or(u16::MAX));
        table
            .load_style(
                TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')),
            )
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX))
            .set_header(&self.head);
        for row in &self.rows {
            table.add_row(row.iter().enumerate().map(|(column, cell)| self.glued(column, cell)));
        }
        let alignment = if self.numbers { CellAlignment::Right } else { CellAlignment::Left };
        // If words are too wide, those of the first column are broken, which are names.
        let excess = self.least_width().saturating_sub(width);
        for (at, column) in table.column_iter_mut().enumerate() {
            let word = self.longest_word(at);
            let least =
                if at == 0 { word.saturating_sub(excess).max(word.min(NAME)) } else { word };
            // With a space on both sides.
            column.set_constraint(ColumnConstraint::LowerBoundary(fixed(least + 2)));
            if at > 0 {
                column.set_cell_alignment(alignment);
            }
        }
        table.trim_fmt().replace(NO_BREAK, " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_tables_align_numbers_to_the_right() {
        let mut table = Table::new(["a", "b"]);
        table.push(["x<y", "1"]);
        table.push(["z", "100"]);
        let text = table.terminal(80);
        let ends: Vec<usize> = text
            .lines()
            .filter(|line| line.contains('1'))
            .map(|line| line.trim_end().chars().count())
            .collect();
        assert_eq!(ends.len(), 2);
        assert_eq!(ends[0], ends[1], "{text}");
    }

    /// The lines are written by hand.
    #[test]
    fn tables_fit_terminals() {
        let mut table = Table::new(["compressor", "against none", "sent", "received"])
            .with_optional(&["received", "sent"]);
        table.push(["topk:ratio=0.05", "+0.10 ± 0.02 [-0.10–0.30]", "10 MB", "11 MB"]);
        let wide = "\x20compressor                     against none    sent   received
────────────────────────────────────────────────────────────────
 topk:ratio=0.05   +0.10 ± 0.02 [-0.10–0.30]   10 MB      11 MB";
        assert_eq!(table.terminal(64), wide);
        assert_eq!(table.terminal(usize::MAX), wide);
        // The longest words of all columns, a space on both sides of each, and one between them:
        // 15 + 12 + 5 + 8 + 4 · 2 + 3.
        let narrow = table.terminal(51);
        assert!(narrow.lines().all(|line| line.chars().count() <= 51), "{narrow}");
        assert!(narrow.contains("received") && narrow.contains(" 10 MB "), "{narrow}");
        // Without the last column 15 + 12 + 5 + 3 · 2 + 2.
        let narrow = table.terminal(40);
        let (shown, note) = narrow.rsplit_once('\n').unwrap();
        assert!(shown.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(shown.contains("sent") && note.ends_with("lack of width: received."), "{narrow}");
        // Long names are broken, to no less than 16 characters.
        table.rows[0][0] = "model.layers.0.weight".to_owned();
        let narrow = table.terminal(10);
        assert!(narrow.contains(" model.layers.0.w ") && narrow.contains(" eight "), "{narrow}");
    }
}
