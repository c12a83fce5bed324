//! Files by hand, read and written.

use std::fs;
use std::path::Path;

use super::*;
use crate::Source;

/// A file of the format, made of JSON and data.
pub(crate) fn file(json: &str, data: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), data].concat()
}

/// A folder with two files of weights and an index, and a file that is none of these.
pub(crate) fn folder(at: &Path) {
    fs::create_dir(at).unwrap();
    let one = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}} "#;
    let two = r#"{"c":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
    fs::write(at.join("m-1.safetensors"), file(one, &[1, 2, 3, 4, 5, 6, 7, 8])).unwrap();
    fs::write(at.join("m-2.safetensors"), file(two, &[9, 10, 11])).unwrap();
    let index =
        r#"{ "weight_map": {"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"} }"#;
    fs::write(at.join("m.safetensors.index.json"), index).unwrap();
    fs::write(at.join("config.json"), "{}").unwrap();
}

/// The names and contents of a folder.
pub(crate) fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn copy(from: &Checkpoint, to: &Path) {
    let new = NewCheckpoint::create(to, from.layout()).unwrap();
    for (at, tensor) in from.tensors().iter().enumerate() {
        let mut bytes = vec![0; tensor.byte_len()];
        from.read_into(at, 0, &mut bytes).unwrap();
        new.write(at, 0, &bytes).unwrap();
    }
    new.finish().unwrap();
}

#[test]
fn a_folder_by_hand() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    folder(&at("old"));
    let old = Checkpoint::open(&at("old")).unwrap();
    let names: Vec<_> = old.tensors().iter().map(|tensor| tensor.name()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!((old.find("b"), old.find("d"), old.bytes()), (Some(1), None, 11));
    let mut bytes = [0; 2];
    old.read_into(1, 1, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 3]);
    copy(&old, &at("new"));
    let mut expected = contents(&at("old"));
    expected.retain(|(name, _)| name != "config.json");
    assert_eq!(contents(&at("new")), expected);
    let error = NewCheckpoint::create(&at("new"), old.layout()).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    // A folder that is not finished leaves nothing.
    drop(NewCheckpoint::create(&at("third"), old.layout()).unwrap());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn a_file_of_the_library_of_the_format() {
    use safetensors::{Dtype, tensor::TensorView};
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let data: Vec<u8> = (0..=255).collect();
    let views: Vec<(String, TensorView<'_>)> = vec![
        ("w".to_owned(), TensorView::new(Dtype::F16, vec![8, 8], &data[..128]).unwrap()),
        ("scale".to_owned(), TensorView::new(Dtype::F8_E8M0, vec![16], &data[128..144]).unwrap()),
        ("q".to_owned(), TensorView::new(Dtype::F4, vec![4, 2], &data[144..148]).unwrap()),
        ("z".to_owned(), TensorView::new(Dtype::C64, vec![3], &data[148..172]).unwrap()),
    ];
    safetensors::serialize_to_file(views, None, &at("old.safetensors")).unwrap();
    let old = Checkpoint::open(&at("old.safetensors")).unwrap();
    let types: Vec<_> =
        old.tensors().iter().map(|t| (t.element().name(), t.shape().to_vec())).collect();
    let bytes = |len: u64| ("U8", vec![len]);
    assert_eq!(types, [bytes(4), bytes(16), ("F16", vec![8, 8]), bytes(24)]);
    copy(&old, &at("new.safetensors"));
    assert_eq!(fs::read(at("new.safetensors")).unwrap(), fs::read(at("old.safetensors")).unwrap());
}

#[test]
fn what_is_no_checkpoint_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let says = |path: &Path, says: &str| {
        let error = Checkpoint::open(path).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    says(&at("none"), "none");
    says(place.path(), "no .safetensors file");
    let json = r#"{"c":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
    fs::write(at("x.safetensors"), file(json, &[0; 3])).unwrap();
    assert_eq!(Checkpoint::open(place.path()).unwrap().tensors().len(), 1);
    fs::write(at("y.safetensors"), file(json, &[0; 2])).unwrap();
    says(&at("y.safetensors"), "its header describes");
    says(place.path(), "several .safetensors files but no index");
    fs::write(at("y.safetensors"), &file(json, &[])[..20]).unwrap();
    says(&at("y.safetensors"), "cut off");
    fs::write(at("y.safetensors"), b"12").unwrap();
    says(&at("y.safetensors"), "cut off");
    // A header of 99 MB that the file does not have costs nothing.
    fs::write(at("y.safetensors"), 99_000_000u64.to_le_bytes()).unwrap();
    says(&at("y.safetensors"), "cut off");
    for (map, text) in [
        (r#"{"c":"../x.safetensors"}"#, "outside its folder"),
        (r#"{"d":"x.safetensors"}"#, "tensor 'd' is in 'x.safetensors', but it is not"),
        (r#"{"c":"z.safetensors"}"#, "z.safetensors"),
        ("{}", "names no file"),
    ] {
        let index = format!(r#"{{"weight_map":{map}}}"#);
        fs::write(at("m.safetensors.index.json"), index).unwrap();
        says(place.path(), text);
    }
}
