//! Standard output, for results alone, and standard error, for everything else.

use std::io::{self, ErrorKind, Write, stderr, stdout};

use serde::Serialize;

use crate::failure::Failure;

/// Prints a line.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    print(text.as_ref()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Run(format!("standard output: {error}")),
    })
}

fn print(line: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a line to standard error, and ignores errors.
pub(crate) fn note(text: impl AsRef<str>) {
    // At once: lines of several processes would mix.
    let _ = stderr().lock().write_all(format!("{}\n", text.as_ref()).as_bytes());
}

/// Rows as JSON: an array with a row on each line.
pub(crate) fn json<T: Serialize>(rows: &[T]) -> String {
    let row = |row: &T| serde_json::to_string(row).expect("rows have keys that are strings");
    let rows: Vec<String> = rows.iter().map(row).collect();
    if rows.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", rows.join(",\n")) }
}
