//! Text as a sequence of tokens: plain `.txt` files by characters, the Penn Treebank by words.
//!
//! | files | tokens | training and test text |
//! |---|---|---|
//! | `ptb.train.txt`, `ptb.test.txt` | words | a file each |
//! | `train.txt`, `test.txt` | characters | a file each |
//! | any other `.txt` | characters | all files, in the order of their names; the last 2 % are the test text |
//!
//! Characters are Unicode characters. Their vocabulary comes from the whole text, or from
//! `train.txt` if the test text is a separate file. Words are separated by white space, and `<eos>`
//! stands for the end of a line. Their vocabulary is the 10 000 most common words of the training
//! text, plus the symbol `<unk>` for all others, unless `<unk>` is already among the common words.
//! (The common distribution of the Penn Treebank has 9 999 words, including `<unk>`.)
//!
//! The complete works of Shakespeare in 42 files have 5 178 120 + 105 675 characters, 80 of them
//! distinct.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use super::DataError;
use super::archive::{self, Entry};
use super::files::Checksums;

/// The number of words with separate symbols.
const WORDS: usize = 10_000;
/// The end of a line.
const END: &str = "<eos>";
/// Any other word.
const UNKNOWN: &str = "<unk>";
/// One token in this number is for testing, if there is no separate test file.
const HELD_OUT: usize = 50;

/// The unit of text that a token stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// One character.
    Characters,
    /// One word, or the end of a line.
    Words,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Characters => "characters",
            Unit::Words => "words",
        })
    }
}

/// A training and a test text, as tokens of one vocabulary.
#[derive(Clone, PartialEq, Eq)]
pub struct Text {
    /// The unit of text of a token.
    pub unit: Unit,
    /// The symbols; a token is an index in this list. Characters are in the order of their code
    /// points, words in decreasing order of frequency.
    pub vocabulary: Vec<String>,
    /// The training text.
    pub train: Vec<u32>,
    /// The test text.
    pub test: Vec<u32>,
}

impl fmt::Debug for Text {
    /// Sizes only: the tokens would fill many screens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (train, test, symbols) = (self.train.len(), self.test.len(), self.vocabulary.len());
        write!(f, "Text({train} and {test} {}, {symbols} symbols)", self.unit)
    }
}

/// Whether a file of this name is text.
pub(super) fn is_text(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    !name.starts_with('.') && extension.eq_ignore_ascii_case("txt")
}

/// Loads the files `names` of `dir`.
pub(super) fn load_files(
    dir: &Path,
    names: &[String],
    sums: &mut Checksums,
) -> Result<Text, DataError> {
    let mut files = Files::new();
    for name in names {
        files.insert(name.clone(), sums.read(dir, name)?);
    }
    assemble(dir, &files)
}

/// Loads the text files of the archive at `path`; `None` if it has none.
pub(super) fn load_archive(path: &Path, bytes: &[u8]) -> Result<Option<Text>, DataError> {
    let mut files = Files::new();
    archive::visit(path, bytes, |entry: Entry<'_>| {
        let name = entry.parts.last().copied().unwrap_or_default();
        if !entry.folder && is_text(name) {
            let inside = entry.parts.join("/");
            files.insert(inside, entry.bytes()?);
        }
        Ok(())
    })?;
    if files.is_empty() { Ok(None) } else { assemble(path, &files).map(Some) }
}

/// The pairs of a training and a test text.
const PAIRS: [[&str; 2]; 2] = [["ptb.train.txt", "ptb.test.txt"], ["train.txt", "test.txt"]];

/// The other file of a file's pair, if it belongs to one.
pub(super) fn other_of_pair(name: &str) -> Option<&'static str> {
    PAIRS.iter().find_map(|pair| {
        let at = pair.iter().position(|known| *known == name)?;
        Some(pair[1 - at])
    })
}

/// Contents by path.
type Files = BTreeMap<String, Vec<u8>>;

/// A file's path and content.
type File<'a> = (&'a Path, &'a str);

fn assemble(origin: &Path, files: &Files) -> Result<Text, DataError> {
    let named = |name: &str| -> Vec<&String> {
        files.keys().filter(|path| path.rsplit('/').next() == Some(name)).collect()
    };
    let find = |name: &str| named(name).first().copied();
    let decoded = |inside: &String| decode(&origin.join(inside), &files[inside]);
    let pair = |train: &str, test: &str| {
        let lacks =
            |file: &str| DataError::MissingFile { path: origin.to_owned(), file: file.to_owned() };
        for name in [train, test] {
            if named(name).len() > 1 {
                let found = named(name).into_iter().cloned().collect();
                return Err(DataError::Ambiguous { path: origin.to_owned(), found });
            }
        }
        let train = find(train).ok_or_else(|| lacks(train))?;
        let test = find(test).ok_or_else(|| lacks(test))?;
        Ok((origin.join(train), decoded(train)?, origin.join(test), decoded(test)?))
    };
    let text = if ["ptb.train.txt", "ptb.test.txt"].into_iter().any(|name| find(name).is_some()) {
        let (train_path, train, test_path, test) = pair("ptb.train.txt", "ptb.test.txt")?;
        words((&train_path, &train), (&test_path, &test))?
    } else if ["train.txt", "test.txt"].into_iter().any(|name| find(name).is_some()) {
        let (train_path, train, test_path, test) = pair("train.txt", "test.txt")?;
        characters((&train_path, &train), (&test_path, &test))?
    } else {
        let parts = files.keys().map(decoded).collect::<Result<Vec<_>, _>>()?;
        held_out(origin, &parts.concat())?
    };
    Ok(text)
}

fn decode(path: &Path, bytes: &[u8]) -> Result<String, DataError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        DataError::NotUtf8 { path: path.to_owned(), line }
    })
}

/// One text whose last part is for testing.
fn held_out(origin: &Path, text: &str) -> Result<Text, DataError> {
    let vocabulary = alphabet(text);
    let mut tokens = encode(&vocabulary, (origin, text))?;
    let test = tokens.split_off(tokens.len() - tokens.len() / HELD_OUT);
    if test.is_empty() {
        return Err(DataError::NoText { path: origin.to_owned(), least: HELD_OUT });
    }
    Ok(Text { unit: Unit::Characters, vocabulary: symbols(vocabulary), train: tokens, test })
}

fn characters(train: File<'_>, test: File<'_>) -> Result<Text, DataError> {
    not_empty([train, test])?;
    let vocabulary = alphabet(train.1);
    let (train, test) = (encode(&vocabulary, train)?, encode(&vocabulary, test)?);
    Ok(Text { unit: Unit::Characters, vocabulary: symbols(vocabulary), train, test })
}

fn not_empty(files: [File<'_>; 2]) -> Result<(), DataError> {
    match files.iter().find(|(_, text)| text.is_empty()) {
        Some((path, _)) => Err(DataError::NoText { path: (*path).to_owned(), least: 1 }),
        None => Ok(()),
    }
}

/// The characters of a text, ascending.
fn alphabet(text: &str) -> Vec<char> {
    text.chars().collect::<BTreeSet<char>>().into_iter().collect()
}

fn symbols(alphabet: Vec<char>) -> Vec<String> {
    alphabet.into_iter().map(String::from).collect()
}

fn encode(alphabet: &[char], (path, text): File<'_>) -> Result<Vec<u32>, DataError> {
    let mut tokens = Vec::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let Ok(token) = alphabet.binary_search(&character) else {
            let line = 1 + text[..at].matches('\n').count();
            return Err(DataError::UnknownCharacter { path: path.to_owned(), line, character });
        };
        tokens.push(token as u32);
    }
    Ok(tokens)
}

/// The words of a text, line by line.
fn tokenise(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split_whitespace().chain([END]))
}

fn words(train: File<'_>, test: File<'_>) -> Result<Text, DataError> {
    not_empty([train, test])?;
    let vocabulary = common(train.1, WORDS);
    let tokens: HashMap<&str, u32> = vocabulary.iter().copied().zip(0..).collect();
    let unknown = tokens[UNKNOWN];
    let encode = |text| tokenise(text).map(|word| *tokens.get(word).unwrap_or(&unknown)).collect();
    let (train, test) = (encode(train.1), encode(test.1));
    let vocabulary = vocabulary.iter().map(|&word| word.to_owned()).collect();
    Ok(Text { unit: Unit::Words, vocabulary, train, test })
}

/// The `most` most common words, the most common first, equally common ones in alphabetical order;
/// then [`UNKNOWN`], unless it is among them.
fn common(text: &str, most: usize) -> Vec<&str> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    tokenise(text).for_each(|word| *counts.entry(word).or_default() += 1);
    let mut ranked: Vec<(&str, usize)> = counts.into_iter().collect();
    ranked.sort_unstable_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
    let mut words: Vec<&str> = ranked.into_iter().take(most).map(|(word, _)| word).collect();
    if !words.contains(&UNKNOWN) {
        words.push(UNKNOWN);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_common_words_have_symbols() {
        let text = "b a a\n\nc b a d\n";
        assert_eq!(common(text, 3), ["<eos>", "a", "b", "<unk>"]);
        assert_eq!(common("<unk> <unk> a", 2), ["<unk>", "<eos>"]);
    }

    #[test]
    fn a_line_ends_with_a_symbol() {
        let words: Vec<&str> = tokenise(" no it was \n\nblack\n").collect();
        assert_eq!(words, ["no", "it", "was", "<eos>", "<eos>", "black", "<eos>"]);
    }
}
