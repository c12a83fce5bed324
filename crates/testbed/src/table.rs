//! Tables for terminals, for Markdown, for pages and as comma-separated values, from the same
//! cells.

mod terminal;

use gradwire::printable;

/// A table. The first column is text; the others are numbers, to the right, unless the table
/// is [`left_aligned`](Self::left_aligned).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Column heads.
    pub head: Vec<String>,
    /// Cells, row by row; each row as long as the head.
    pub rows: Vec<Vec<String>>,
    numbers: bool,
    /// Heads of columns that a narrow terminal leaves out, in this order.
    optional: &'static [&'static str],
}

impl Table {
    /// A table without rows yet.
    pub fn new<S: ToString>(head: impl IntoIterator<Item = S>) -> Self {
        let head = head.into_iter().map(|head| head.to_string()).collect();
        Self { head, rows: Vec::new(), numbers: true, optional: &[] }
    }

    /// A table with a row for each item, made column by column.
    pub fn of<T>(items: &[T]) -> Columns<'_, T> {
        let rows = vec![Vec::new(); items.len()];
        Columns { items, table: Self { rows, ..Self::new([""; 0]) } }
    }

    /// The same table without its second column, if that column has this head. In tables of a
    /// paper's designs it holds the specs, which are too wide for a terminal.
    pub fn without_second(mut self, head: &str) -> Self {
        if self.head.get(1).is_some_and(|second| second == head) {
            self.remove(1);
        }
        self
    }

    fn remove(&mut self, column: usize) {
        self.head.remove(column);
        self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }

    /// The same table, whose columns with these heads a narrow terminal leaves out, in this order.
    pub fn with_optional(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// The same table with text in all columns.
    pub fn left_aligned(self) -> Self {
        Self { numbers: false, ..self }
    }

    /// Whether all columns but the first are numbers.
    pub(crate) fn has_numbers(&self) -> bool {
        self.numbers
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the row does not have one cell for each column.
    pub fn push<S: ToString>(&mut self, cells: impl IntoIterator<Item = S>) {
        let row: Vec<String> =
            cells.into_iter().map(|cell| printable(cell.to_string()).to_string()).collect();
        assert_eq!(row.len(), self.head.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// As comma-separated values (RFC 4180).
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in [&self.head].into_iter().chain(&self.rows) {
            writer.write_record(row).expect("rows have a cell for each column, in memory");
        }
        let bytes = writer.into_inner().expect("memory takes all bytes");
        String::from_utf8(bytes).expect("cells are text")
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As a Markdown table.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | ").replace('\n', " "))
        };
        let mut rule = "|---|".to_owned();
        let column = if self.numbers { "---:|" } else { "---|" };
        rule.push_str(&column.repeat(self.head.len().saturating_sub(1)));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}\n{rows}", line(&self.head))
    }
}

/// A table under construction, column by column.
#[derive(Debug)]
pub struct Columns<'a, T> {
    items: &'a [T],
    table: Table,
}

impl<'a, T> Columns<'a, T> {
    /// Adds a column: its head, and the content of its cell for an item.
    pub fn column<S: ToString>(mut self, head: impl ToString, cell: impl Fn(&'a T) -> S) -> Self {
        self.table.head.push(head.to_string());
        for (row, item) in self.table.rows.iter_mut().zip(self.items) {
            row.push(printable(cell(item).to_string()).to_string());
        }
        self
    }

    /// The finished table.
    pub fn table(self) -> Table {
        self.table
    }
}

/// A cell; a dash if it is empty.
pub(crate) fn or_dash(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "–".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["a", "b"]);
        table.push(["x<y", "1"]);
        table
    }

    #[test]
    fn markdown_by_hand() {
        let mut table = table();
        table.push(["|c|", "2"]);
        let expected = "| a | b |\n|---|---:|\n| x<y | 1 |\n| \\|c\\| | 2 |\n";
        assert_eq!(table.markdown(), expected);
    }

    #[test]
    fn a_second_column_is_left_out_by_its_head() {
        assert_eq!(table().without_second("b").markdown(), "| a |\n|---|\n| x<y |\n");
        assert_eq!(table().without_second("a"), table());
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut table = table();
        table.push(["z", "1, \"one\""]);
        assert_eq!(table.csv(), "a,b\nx<y,1\nz,\"1, \"\"one\"\"\"\n");
    }
}
