//! The forms in which commands print tables: for a terminal, Markdown, or comma-separated values.

use std::io::stdout;

use clap::Args;
use gradwire_testbed::table::Table;
use gradwire_testbed::wrap::wrapped;
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// The name of the group of flags that choose a form; `--json` belongs to it, too.
pub(crate) const FORM: &str = "form";

/// The width of tables if standard output is no terminal.
const WIDTH: usize = 80;

/// The most characters of a line of text, as in the help.
const MOST: usize = 100;

/// How tables are printed.
#[derive(Debug, Default, Clone, Copy, Args)]
pub(crate) struct Form {
    /// Print tables as Markdown
    #[arg(long, group = FORM)]
    markdown: bool,
    /// Print comma-separated values; other text goes to standard error
    #[arg(long, group = FORM)]
    csv: bool,
}

impl Form {
    /// Prints a table.
    pub(crate) fn print(self, table: &Table) -> Result<(), Failure> {
        output::line(match self {
            Self { csv: true, .. } => table.csv().trim_end().to_owned(),
            Self { markdown: true, .. } => table.markdown().trim_end().to_owned(),
            _ => table.terminal(width()),
        })
    }

    /// Prints a table of these rows or, as comma-separated values, the rows themselves, whose
    /// fields are text or numbers.
    pub(crate) fn print_rows<T: Serialize>(
        self,
        rows: &[T],
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), Failure> {
        if self.csv { self.print_csv(rows) } else { self.print(&table(rows)) }
    }

    /// Prints rows as comma-separated values; their fields are text or numbers.
    pub(crate) fn print_csv<T: Serialize>(self, rows: &[T]) -> Result<(), Failure> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in rows {
            writer.serialize(row).expect("a row has fields of text and numbers");
        }
        let bytes = writer.into_inner().expect("memory takes all bytes");
        output::line(String::from_utf8_lossy(&bytes).trim_end())
    }

    /// Prints text between tables, wrapped unless it is Markdown.
    pub(crate) fn text(self, text: impl AsRef<str>) -> Result<(), Failure> {
        let text = text.as_ref();
        match self {
            Self { markdown: true, .. } => output::line(text),
            Self { csv: false, .. } => output::line(wrapped(text, width().min(MOST))),
            _ if text.is_empty() => Ok(()),
            _ => {
                output::note(text.trim_start());
                Ok(())
            }
        }
    }

    /// Whether rows are printed as comma-separated values.
    pub(crate) fn is_csv(self) -> bool {
        self.csv
    }
}

/// The characters of a line: of the terminal, or as many as the variable `COLUMNS` says.
fn width() -> usize {
    let terminal = || Some(usize::from(terminal_size::terminal_size_of(stdout())?.0.0));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal().or_else(columns).filter(|width| *width > 0).unwrap_or(WIDTH)
}
