//! Paragraphs for terminals.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Breaks the lines of a text between words, at a width in characters. The rest of a line is
/// indented by two more than its beginning. A word that is longer than a line stays whole.
pub fn wrapped(text: &str, width: usize) -> String {
    let wrap = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let rest = " ".repeat(indent + 2);
        let options = Options::new(width)
            .initial_indent(&rest[2..])
            .subsequent_indent(&rest)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation)
            .wrap_algorithm(WrapAlgorithm::FirstFit)
            .break_words(false);
        textwrap::fill(line.trim_start_matches(' '), options)
    };
    text.split('\n').map(wrap).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines are broken by hand.
    #[test]
    fn lines_are_broken_between_words() {
        let text = "at 1 Mbit/s: 3lc\n\n  f(a, scatter-reduce, b)\na-word-that-is-too-long ±";
        let expected = "at 1 Mbit/s:\n  3lc\n\n  f(a,\n    scatter-reduce,\n    b)\na-word-that-is-too-long\n  ±";
        assert_eq!(wrapped(text, 14), expected);
        assert_eq!(wrapped(text, 80), text);
    }
}
