//! Text from files and from other programs, made safe to print.

use std::fmt::{self, Display, Write};

/// Shows an untrusted text, such as the name of a tensor in a file, in one line. Characters that a
/// terminal or a browser obeys instead of showing become `\n`, `\u{1b}` and the like; others are
/// unchanged.
///
/// These are the control characters, line and paragraph separators, marks that change the direction
/// of text, and characters of no width that hide others. A name could otherwise colour a terminal,
/// look like another name, or add a line to a log.
///
/// ```
/// # use gradwire::printable;
/// assert_eq!(printable("fc\u{1b}[31m").to_string(), r"fc\u{1b}[31m");
/// assert_eq!(printable("größe").to_string(), "größe");
/// ```
pub fn printable<T: Display>(text: T) -> Printable<T> {
    Printable { text, in_lines: false }
}

/// [`printable`] for a text of several lines; line breaks stay.
pub fn printable_lines<T: Display>(text: T) -> Printable<T> {
    Printable { text, in_lines: true }
}

/// The result of [`printable`].
#[derive(Debug, Clone, Copy)]
pub struct Printable<T> {
    text: T,
    in_lines: bool,
}

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping { to: f, in_lines: self.in_lines }, "{}", self.text)
    }
}

/// Escapes the written text.
struct Escaping<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    in_lines: bool,
}

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let in_lines = self.in_lines;
        let is_escaped = |character| is_obeyed(character) && !(in_lines && character == '\n');
        let mut rest = text;
        while let Some(at) = rest.find(is_escaped) {
            let (plain, from) = rest.split_at(at);
            self.to.write_str(plain)?;
            let mut characters = from.chars();
            if let Some(character) = characters.next() {
                write!(self.to, "{}", character.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.to.write_str(rest)
    }
}

/// Whether a terminal or a browser obeys or hides a character instead of showing it.
pub fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Soft hyphen; the Arabic mark and the marks of both directions; zero-width space;
            // separators and embeddings; word joiner and invisible operators, isolates; the mark of
            // the byte order; annotations; tags.
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_obeyed_is_escaped_and_the_rest_stays() {
        for (text, shown) in [
            ("", ""),
            ("fc1.weight", "fc1.weight"),
            ("größe 重み 😀 a\\b", "größe 重み 😀 a\\b"),
            ("a\nb\tc\r", r"a\nb\tc\r"),
            ("\u{1b}[2Jx\u{7}\u{7f}\u{9b}", r"\u{1b}[2Jx\u{7}\u{7f}\u{9b}"),
            ("x\u{202e}fdp.\u{2066}\u{200f}", r"x\u{202e}fdp.\u{2066}\u{200f}"),
            ("\u{2028}\u{feff}\u{e0041}", r"\u{2028}\u{feff}\u{e0041}"),
        ] {
            assert_eq!(printable(text).to_string(), shown);
            // The same in pieces.
            let pieces = text.chars().map(|c| printable(c).to_string()).collect::<String>();
            assert_eq!(pieces, shown);
        }
        assert_eq!(printable_lines("a\nb\r\n\u{1b}").to_string(), "a\nb\\r\n\\u{1b}");
    }
}
