use std::fs;

use tempfile::tempdir;

use super::{cifar, folder, idx, refused, write};
use crate::data::{DataError, load};

#[test]
fn one_subfolder_with_a_data_set_is_found() {
    let dir = tempdir().unwrap();
    idx::write_set(&dir.path().join("mnist"));
    write(dir.path(), "notes/readme.txt", b"nothing here");
    write(dir.path(), "SHA256SUMS", b"");
    assert_eq!(load(dir.path()).unwrap().name, "mnist");
}

#[test]
fn several_data_sets_are_listed() {
    let dir = tempdir().unwrap();
    idx::write_set(&dir.path().join("mnist"));
    cifar::write_set(&dir.path().join("cifar"));
    folder::write_set(&dir.path().join("pets"));
    let words =
        ["cifar: CIFAR-10 binary", "mnist: MNIST idx", "pets: image folders", "name the one"];
    let error = refused(dir.path(), &words);
    assert!(matches!(error, DataError::Ambiguous { found, .. } if found.len() == 3));
}

#[test]
fn two_kinds_in_one_folder_are_listed() {
    let dir = tempdir().unwrap();
    idx::write_set(dir.path());
    write(dir.path(), "more.tar.gz", b"");
    refused(dir.path(), &["MNIST idx files", "archive more.tar.gz"]);
}

#[test]
fn what_is_not_recognised_is_refused() {
    let dir = tempdir().unwrap();
    let error = refused(dir.path(), &["MNIST idx", "CIFAR-10 binary", "train/<class>", ".tar.gz"]);
    assert!(matches!(error, DataError::Unrecognised { .. }));
    write(dir.path(), "input.md", b"to be or not to be");
    let error = refused(&dir.path().join("input.md"), &["input.md"]);
    assert!(matches!(error, DataError::Unrecognised { .. }));
    let error = refused(&dir.path().join("absent"), &["absent", "check the path"]);
    assert!(matches!(error, DataError::Read { .. }));
}

#[test]
fn the_checksum_covers_names_and_bytes() {
    let dir = tempdir().unwrap();
    idx::write_set(dir.path());
    let first = load(dir.path()).unwrap().checksum;
    // `sha256sum t10k* train* | sha256sum` on these four files.
    assert_eq!(first, "a058cea74c04e9c3b41d235fbe2857c0723cd6d78b31a73fc8b7f63869a4d9a9");
    write(dir.path(), "another.txt", b"no part of it");
    assert_eq!(load(dir.path()).unwrap().checksum, first);

    let path = dir.path().join("t10k-images-idx3-ubyte");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_ne!(load(dir.path()).unwrap().checksum, first);
}
