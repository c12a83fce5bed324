use std::fs;
use std::path::Path;

use tempfile::tempdir;

use super::{gzip, idx, refused, write};
use crate::data::{DataError, Dataset, Text, Unit, load};

fn text(data: &Dataset) -> &Text {
    data.text().expect("a data set of text")
}

fn decoded(text: &Text, tokens: &[u32]) -> Vec<String> {
    tokens.iter().map(|&token| text.vocabulary[token as usize].clone()).collect()
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn files_are_joined_by_name_and_the_end_is_held_out() {
    let dir = tempdir().unwrap();
    let folder = dir.path().join("letters");
    write(&folder, "b.txt", "dé".repeat(20).as_bytes());
    write(&folder, "a.TXT", "acab".repeat(15).as_bytes());
    write(&folder, ".c.txt", b"zzz");
    write(&folder, "notes.md", b"zzz");
    let data = load(&folder).unwrap();
    assert_eq!(data.name, "letters");
    let text = text(&data);
    assert_eq!(text.unit, Unit::Characters);
    assert_eq!(text.vocabulary, ["a", "b", "c", "d", "é"]);
    // A hundred characters, two of them for testing.
    assert_eq!((text.train.len(), text.test.len()), (98, 2));
    assert_eq!(text.train[..6], [0, 2, 0, 1, 0, 2]);
    assert_eq!(text.test, [3, 4]);
    assert_eq!(data.images().map(|_| ()), None);
}

#[test]
fn one_file_is_a_text_too() {
    let dir = tempdir().unwrap();
    write(dir.path(), "novel.txt", "to be or not ".repeat(5).as_bytes());
    write(dir.path(), "other.txt", b"zzz");
    let data = load(&dir.path().join("novel.txt")).unwrap();
    assert_eq!((data.name.as_str(), text(&data).train.len()), ("novel", 64));
}

#[test]
fn a_test_file_is_in_the_training_texts_characters() {
    let dir = tempdir().unwrap();
    write(dir.path(), "train.txt", b"abc\ncba");
    write(dir.path(), "test.txt", b"cab\nab");
    let data = load(dir.path()).unwrap();
    assert_eq!(text(&data).vocabulary, ["\n", "a", "b", "c"]);
    assert_eq!(text(&data).test, [3, 1, 2, 0, 1, 2]);
    assert_eq!(text(&data).train.len(), 7);

    write(dir.path(), "test.txt", "cab\nab\naβ".as_bytes());
    let error = refused(dir.path(), &["test.txt', line 3", "'β'"]);
    assert!(matches!(error, DataError::UnknownCharacter { line: 3, character: 'β', .. }));
    write(dir.path(), "test.txt", b"");
    refused(dir.path(), &["test.txt", "too little text"]);
    fs::remove_file(dir.path().join("test.txt")).unwrap();
    refused(dir.path(), &["does not have test.txt"]);
}

#[test]
fn a_file_of_a_pair_brings_the_other() {
    let dir = tempdir().unwrap();
    write(dir.path(), "train.txt", b"abc");
    write(dir.path(), "test.txt", b"ca");
    for name in ["train.txt", "test.txt"] {
        let data = load(&dir.path().join(name)).unwrap();
        assert_eq!((text(&data).train.len(), text(&data).test.len()), (3, 2), "{name}");
    }
    fs::remove_file(dir.path().join("train.txt")).unwrap();
    refused(dir.path(), &["does not have train.txt"]);
}

const TRAIN: &[u8] = b" the cat <unk> the mat \n the end \n";
const TEST: &[u8] = b" the dog \n";

/// The two as Python's zipfile packs them, the first deflated and the second stored, with files of
/// macOS beside them and a comment.
const ZIP: &[u8] = include_bytes!("ptb.zip");

#[test]
fn the_penn_treebank_is_read_by_words() {
    let dir = tempdir().unwrap();
    write(dir.path(), "zip/ptb.zip", ZIP);
    let files = [("ptb.train.txt", TRAIN), ("a/ptb.test.txt", TEST), ("ptb.valid.txt", b"new")];
    write(dir.path(), "tar/ptb.tar.gz", &gzip(&tar(&files)));
    write(dir.path(), "plain/ptb.train.txt", TRAIN);
    write(dir.path(), "plain/ptb.test.txt", TEST);
    for folder in ["zip", "tar", "plain"] {
        let data = load(&dir.path().join(folder)).unwrap();
        let text = text(&data);
        assert_eq!(text.unit, Unit::Words);
        // Three times the, twice the end of a line, the others once.
        assert_eq!(text.vocabulary, ["the", "<eos>", "<unk>", "cat", "end", "mat"]);
        let train = decoded(text, &text.train).join(" ");
        assert_eq!(train, "the cat <unk> the mat <eos> the end <eos>");
        assert_eq!(decoded(text, &text.test), ["the", "<unk>", "<eos>"]);
    }
    fs::remove_file(dir.path().join("plain/ptb.test.txt")).unwrap();
    refused(&dir.path().join("plain"), &["does not have ptb.test.txt"]);
}

#[test]
fn a_large_zip_is_read_by_its_zip64_record() {
    let dir = tempdir().unwrap();
    let end = ZIP.windows(4).rposition(|mark| mark == b"PK\x05\x06").unwrap();
    let field = |at: usize, len: usize| {
        ZIP[end + at..][..len].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let (count, start) = (field(10, 2), field(16, 4));
    // From the same archive, with more files than the record at the end can count.
    let large = |count: u64| {
        let mut bytes = ZIP[..end].to_vec();
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([0; 12]);
        let fields = [count, count, end as u64 - start, start];
        fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend((end as u64).to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(&ZIP[end..]);
        let end = bytes.len() - (ZIP.len() - end);
        bytes[end + 8..end + 12].fill(0xff);
        bytes
    };
    write(dir.path(), "large.zip", &large(count));
    assert_eq!(text(&load(dir.path()).unwrap()).test.len(), 3);
    write(dir.path(), "large.zip", &large(count - 1));
    refused(dir.path(), &["large.zip", "the number of entries that it states"]);
    let mut short = ZIP.to_vec();
    short[end + 10] -= 1;
    write(dir.path(), "large.zip", &short);
    refused(dir.path(), &["the number of entries that it states"]);
}

#[test]
fn text_counts_only_where_there_is_nothing_else() {
    let dir = tempdir().unwrap();
    write(dir.path(), "readme.txt", b"about the digits");
    write(dir.path(), "notes/more.txt", b"about the digits");
    idx::write_set(&dir.path().join("mnist"));
    assert_eq!(load(dir.path()).unwrap().name, "mnist");
    fs::remove_dir_all(dir.path().join("mnist")).unwrap();
    refused(dir.path(), &["has too little text"]);
    fs::remove_file(dir.path().join("readme.txt")).unwrap();
    write(dir.path(), "notes/more.txt", &[b'a'; 50]);
    assert_eq!(load(dir.path()).unwrap().name, "notes");
    write(dir.path(), "letters/one.txt", &[b'a'; 50]);
    refused(dir.path(), &["letters: text files", "notes: text files", "name the one"]);
}

fn refused_text(dir: &Path, name: &str, bytes: &[u8], words: &[&str]) {
    let folder = dir.join(name.replace('.', "-"));
    write(&folder, name, bytes);
    refused(&folder, words);
}

#[test]
fn faulty_texts_are_named() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    refused_text(dir, "empty.txt", b"", &["has too little text", "50 characters"]);
    refused_text(dir, "short.txt", &[b'a'; 49], &["too little text"]);
    refused_text(dir, "latin.txt", b"one\ntwo \xe9t\xe9", &["latin.txt', line 2", "UTF-8"]);
    for length in 0..ZIP.len() {
        let cut = dir.join("cut.zip");
        fs::write(&cut, &ZIP[..length]).unwrap();
        assert!(load(&cut).is_err(), "{length}");
    }
    fs::write(dir.join("cut.zip"), &ZIP[..60]).unwrap();
    refused(&dir.join("cut.zip"), &["cut.zip", "damaged", "directory"]);
    let stored = ZIP.windows(TEST.len()).position(|part| part == TEST).unwrap();
    let mut flipped = ZIP.to_vec();
    flipped[stored] ^= 1;
    refused_text(dir, "flipped.zip", &flipped, &["flipped.zip", "damaged", "checksum"]);
    let packed = gzip(&tar(&[("ptb.train.txt", TRAIN)]));
    refused_text(dir, "cut.tar.gz", &packed[..packed.len() - 4], &["cut.tar.gz", "damaged"]);
    let other = gzip(&tar(&[("a.md", TRAIN)]));
    refused_text(dir, "none.tar.gz", &other, &["none.tar.gz", "no data set"]);
}

#[test]
fn two_texts_with_a_test_file_each_are_one_too_many() {
    let dir = tempdir().unwrap();
    let files: [(&str, &[u8]); 4] = [
        ("a/train.txt", b"abc"),
        ("a/test.txt", b"abc"),
        ("b/train.txt", b"abc"),
        ("b/test.txt", b"abc"),
    ];
    write(dir.path(), "both.tar", &tar(&files));
    let refused = load(&dir.path().join("both.tar")).unwrap_err().to_string();
    assert!(refused.contains("a/train.txt, b/train.txt"), "{refused}");
}
