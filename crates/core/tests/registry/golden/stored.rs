//! The file of frames without a message: stored tensors and metadata.

use std::fs;

use gradwire::Tensor;
use gradwire::frame::{ElementType, Item, Metadata, StoredTensor};

use super::folder;

/// The file: four elements of every type, a scalar, a tensor without elements, and metadata.
fn written() -> Vec<u8> {
    let mut file = Vec::new();
    let mut store = |name: &str, shape: &[usize], element: ElementType| {
        let bytes = element.bytes(shape).unwrap();
        let data: Vec<u8> = (0..bytes).map(|at| (at * 37 + 11) as u8).collect();
        let tensor = StoredTensor::new(Tensor::new(name, shape), element, &data).unwrap();
        tensor.write(&mut file).unwrap();
    };
    for element in ElementType::all() {
        store(element.name(), &[2, 2], element);
    }
    store("bn1.num_batches_tracked", &[], ElementType::I64);
    store("empty", &[0, 3], ElementType::Bool);
    let entries = [("format", "pt"), ("note", "ä\t\"\n")];
    Metadata(entries.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        .write(&mut file);
    file
}

#[test]
fn frames_without_a_message_have_the_same_bytes() {
    let path = folder().join("stored/v2.gw");
    let bytes = written();
    if std::env::var_os("GRADWIRE_WRITE_GOLDEN").is_some_and(|set| set == "1") && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &bytes).unwrap();
    }
    let file = fs::read(&path)
        .unwrap_or_else(|_| panic!("{} is missing; cargo xtask golden writes it", path.display()));
    assert!(file == bytes, "this build writes stored tensors in other bytes than the golden file");
    let (mut rest, mut items) = (&file[..], 0);
    while !rest.is_empty() {
        Item::read(&mut rest).unwrap();
        items += 1;
    }
    assert_eq!(items, ElementType::all().count() + 3);
}

#[test]
fn the_page_has_every_element_type() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let page = fs::read_to_string(page).unwrap();
    for element in ElementType::all() {
        let row = format!("| {} | `{element}` | {} |", element.code(), element.bits());
        assert!(page.contains(&row), "docs/format.md has no row {row}");
    }
}
