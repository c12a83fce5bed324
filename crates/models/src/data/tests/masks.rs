use std::path::Path;

use tempfile::tempdir;

use super::folder::tar;
use super::pictures::{jpeg_of, png_of};
use super::{image_set, refused, write};
use crate::data::tests::real_data::real_data;
use crate::data::{Verdict, catalogue, load};

/// An image of two bright columns of four, and its mask.
fn pair(path: &str) -> [(String, Vec<u8>); 2] {
    let grey = |dark: u8, bright: u8| [[bright; 96], [dark; 96]].concat().repeat(96);
    [
        (format!("{path}.jpg"), jpeg_of((192, 96), 1, &grey(20, 200))),
        (format!("{path}.png"), png_of((192, 96), 1, &grey(0, 255))),
    ]
}

fn write_archive(dir: &Path, files: &[(String, Vec<u8>)]) {
    write(dir, "parts.tar", &tar(files));
}

#[test]
fn every_fifth_of_a_folder_is_for_testing() {
    let dir = tempdir().unwrap();
    let mut files: Vec<_> = (0..6).flat_map(|at| pair(&format!("a/Imgs/{at}"))).collect();
    files.extend(pair("b/0"));
    files.push(("README.md".to_owned(), b"description".to_vec()));
    write_archive(dir.path(), &files);
    let data = load(dir.path()).unwrap();
    let set = image_set(&data);
    assert_eq!((set.train.len(), set.test.len()), (6, 1));
    assert_eq!((set.train.shape(), set.train.classes), ([1, 96, 96], 2));
    assert!(set.train.is_masked() && set.test.is_masked());
    // The left half is bright and marked; JPEG is off by little.
    let (image, mask) = (set.test.image(0), set.test.labels_of(0..1));
    assert_eq!(mask.len(), 96 * 96);
    for (at, (&grey, &label)) in image.iter().zip(mask).enumerate() {
        let column = at % 96;
        if column != 47 && column != 48 {
            let (expected, marked) = if column < 48 { (200, 1) } else { (20, 0) };
            assert!(grey.abs_diff(expected) < 12 && label == marked, "{at}: {grey} {label}");
        }
    }
}

#[test]
fn images_without_masks_are_refused() {
    let dir = tempdir().unwrap();
    let mut files = pair("a/0").to_vec();
    files.push(pair("a/1")[0].clone());
    write_archive(dir.path(), &files);
    refused(dir.path(), &["parts.tar", "a/1.png"]);
    files.push(("a/1.png".to_owned(), b"no image".to_vec()));
    write_archive(dir.path(), &files);
    refused(dir.path(), &["a/1.png", "cannot be decoded"]);
}

#[test]
fn masks_have_the_size_of_their_images() {
    let dir = tempdir().unwrap();
    let [image, (name, _)] = pair("a/0");
    let turned = png_of((96, 192), 1, &[255; 96 * 192]);
    write_archive(dir.path(), &[image, (name, turned)]);
    refused(dir.path(), &["a/0.png", "96×192×1", "192×96×1"]);
}

#[test]
fn hidden_files_are_no_images() {
    let dir = tempdir().unwrap();
    let mut files: Vec<_> = (0..5).flat_map(|at| pair(&format!("a/{at}"))).collect();
    for name in ["a/._0.jpg", "__MACOSX/a/1.png", "a/.trash/2.jpg"] {
        files.push((name.to_owned(), b"no image".to_vec()));
    }
    write_archive(dir.path(), &files);
    assert_eq!(image_set(&load(dir.path()).unwrap()).train.len(), 4);
}

#[test]
fn magnetic_tiles() {
    let Some(dir) = real_data("magnetic-tile") else { return };
    let known = catalogue().into_iter().find(|known| known.name == "magnetic-tile").unwrap();
    assert!(known.verify(&dir).unwrap().iter().all(|(_, verdict)| *verdict == Verdict::Matches));
    let data = load(&dir).unwrap();
    let set = image_set(&data);
    // 115, 85, 57, 32 and 103 in five folders.
    assert_eq!((set.train.len(), set.test.len()), (315, 77));
    let marked = set.train.labels.iter().filter(|&&label| label == 1).count();
    let part = marked as f64 / set.train.labels.len() as f64;
    assert!((0.005..0.3).contains(&part), "{part} of the pixels are marked");
}
