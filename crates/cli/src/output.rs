//! Standard output, for results alone; everything else goes to standard error.

use std::io::{Write, stdout};

use serde::Serialize;

use crate::failure::Failure;

/// Prints a line.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Rows as JSON: an array with a row on each line.
pub(crate) fn json<T: Serialize>(rows: &[T]) -> String {
    let row = |row: &T| serde_json::to_string(row).expect("rows have keys that are strings");
    let rows: Vec<String> = rows.iter().map(row).collect();
    if rows.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", rows.join(",\n")) }
}
