//! Standard output, for results alone, and standard error, for everything else.

use std::io::{self, ErrorKind, Write, stderr, stdout};

use gradwire::{files, is_obeyed, printable_lines};
use serde::Serialize;

use crate::failure::Failure;

/// Prints one or several lines, made [printable](gradwire::printable): names from files may have
/// control characters.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    print(&printable_lines(text.as_ref()).to_string()).map_err(failed)
}

/// Why standard output cannot be written.
pub(crate) fn failed(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Run(format!("standard output: {error}{}", files::remedy(&error))),
    }
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
    let _ = stderr().lock().write_all(format!("{}\n", printable_lines(text.as_ref())).as_bytes());
}

/// Rows as JSON: an array with a row on each line.
pub(crate) fn json<T: Serialize>(rows: &[T]) -> String {
    let row = |row: &T| {
        let text = serde_json::to_string(row).expect("rows have keys that are strings");
        text.chars().map(escaped).collect::<String>()
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    if rows.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", rows.join(",\n")) }
}

/// A value as JSON, indented.
pub(crate) fn json_of<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("a value has keys that are strings");
    // Line ends are between values only: within strings they are escaped already.
    text.chars().map(|c| if c == '\n' { "\n".to_owned() } else { escaped(c) }).collect()
}

/// A character of JSON, which is within a string if it is not ASCII.
fn escaped(character: char) -> String {
    match character {
        obeyed if is_obeyed(obeyed) => {
            obeyed.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        }
        shown => shown.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_json_of_the_same_text() {
        let rows = ["\u{1b}[1m\u{202e}\u{7f}\u{9b}\u{e0041} größe \"\\n\"\n"];
        let text = json(&rows);
        assert!(!text.contains(|c| is_obeyed(c) && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), rows);
    }
}
