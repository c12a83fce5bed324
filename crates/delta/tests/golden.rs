//! A delta and a snapshot, written once and then frozen: a release must read, and write, the same
//! bytes as earlier ones.
//!
//! `GRADWIRE_WRITE_GOLDEN=1` writes the files that are absent and never changes one that is there.
//! A change of format takes a new version beside the old one.

mod common;

use std::fs;
use std::path::PathBuf;

use common::*;
use gradwire_delta::{Absent, DiffOptions, ElementType, Mirror, Receiver};

/// The golden file, written if it is absent and may be written.
fn golden(name: &str, stream: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let may_write = std::env::var_os("GRADWIRE_WRITE_GOLDEN").is_some_and(|set| set == "1");
    if may_write && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, stream).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The model after a step, with a removed, a new and a reshaped tensor.
fn next(old: &Model) -> Model {
    let mut new = step(old, 1, 40);
    new.remove(1);
    let reshaped = new.iter_mut().find(|(tensor, _)| tensor.name() == "table").unwrap();
    reshaped.0 = tensor("table", ElementType::F64, &[9]);
    new.push((tensor("x", ElementType::F16, &[2]), vec![1, 2, 3, 4]));
    new
}

#[test]
fn a_delta_keeps_its_bytes() {
    let old = model(1);
    let new = next(&old);
    for (name, portable) in [("delta-v1.gwd", false), ("portable-v1.gwd", true)] {
        let options = DiffOptions { portable, absent: Absent::Remove, ..DiffOptions::default() };
        let stream = diff(&mut sender(&old, options, 1), &new);
        let file = golden(name, &stream);
        let mut receiver = receiver(&old);
        apply(&mut receiver, &file).unwrap();
        assert!(has(&receiver, &new), "{name}");
        assert!(stream == file, "{name}: the bytes have changed");
    }
}

#[test]
fn a_snapshot_keeps_its_bytes() {
    let model = step(&model(1), 1, 40);
    let stream = snapshot(&mut sender(&model, DiffOptions::default(), 1));
    let file = golden("snapshot-v1.gwd", &stream);
    let mut empty = Receiver::new(Mirror::default(), 1).unwrap();
    apply(&mut empty, &file).unwrap();
    assert!(has(&empty, &model));
    assert!(stream == file, "the bytes have changed");
}
