use std::fs;
use std::path::Path;

use tempfile::tempdir;

use super::{gzip, image_set, refused, write};
use crate::data::{DataError, load};

const TRAIN_IMAGES: &str = "train-images-idx3-ubyte";
const TRAIN_LABELS: &str = "train-labels-idx1-ubyte";
const TEST_IMAGES: &str = "t10k-images-idx3-ubyte";
const TEST_LABELS: &str = "t10k-labels-idx1-ubyte";

fn idx(magic: u32, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let words = [magic].into_iter().chain(sizes.iter().copied());
    let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    bytes.extend_from_slice(data);
    bytes
}

fn images(data: &[u8]) -> Vec<u8> {
    idx(2051, &[data.len() as u32 / 6, 2, 3], data)
}

fn labels(data: &[u8]) -> Vec<u8> {
    idx(2049, &[data.len() as u32], data)
}

/// Two training images and one test image, of 2 rows and 3 columns.
pub(super) fn write_set(dir: &Path) {
    write(dir, TRAIN_IMAGES, &images(&[0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255]));
    write(dir, TRAIN_LABELS, &labels(&[9, 0]));
    write(dir, TEST_IMAGES, &images(&[10, 20, 30, 40, 50, 60]));
    write(dir, TEST_LABELS, &labels(&[4]));
}

#[test]
fn files_load_with_or_without_gzip() {
    let dir = tempdir().unwrap();
    let dir = &dir.path().join("small");
    write_set(dir);
    let plain = load(dir).unwrap();
    for name in [TRAIN_IMAGES, TEST_LABELS] {
        let bytes = fs::read(dir.join(name)).unwrap();
        write(dir, &format!("{name}.gz"), &gzip(&bytes));
        fs::remove_file(dir.join(name)).unwrap();
    }
    let zipped = load(dir).unwrap();

    assert_eq!(plain.name, "small");
    assert_eq!((image_set(&plain).train.len(), image_set(&plain).test.len()), (2, 1));
    assert_eq!((image_set(&plain).train.shape(), image_set(&plain).train.classes), ([1, 2, 3], 10));
    assert_eq!(image_set(&plain).train.image(1), [250, 251, 252, 253, 254, 255]);
    assert_eq!(image_set(&plain).train.labels, [9, 0]);
    assert_eq!(image_set(&plain).test.image(0), [10, 20, 30, 40, 50, 60]);
    assert_eq!(image_set(&plain).test.labels, [4]);
    assert_eq!(
        (&image_set(&zipped).train, &image_set(&zipped).test),
        (&image_set(&plain).train, &image_set(&plain).test)
    );
    assert_ne!(zipped.checksum, plain.checksum, "other files were read");
}

#[test]
fn moments_are_those_of_the_training_pixels() {
    let dir = tempdir().unwrap();
    write_set(dir.path());
    let data = load(dir.path()).unwrap();
    // Mean of 0..=5 and 250..=255 is 127.5; their variance is 125² + 35/12.
    assert!((image_set(&data).mean[0] - 0.5).abs() < 1e-6);
    let std = (125.0f32 * 125.0 + 35.0 / 12.0).sqrt() / 255.0;
    assert!(
        (image_set(&data).std[0] - std).abs() < 1e-6,
        "{} is not {std}",
        image_set(&data).std[0]
    );

    write(dir.path(), TRAIN_IMAGES, &images(&[7; 12]));
    assert_eq!(image_set(&load(dir.path()).unwrap()).std, [1.0], "a constant channel");
}

#[test]
fn a_missing_file_is_named() {
    for missing in [TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS] {
        let dir = tempdir().unwrap();
        write_set(dir.path());
        fs::remove_file(dir.path().join(missing)).unwrap();
        let error = refused(dir.path(), &[missing, ".gz"]);
        assert!(matches!(error, DataError::MissingFile { .. }), "{error:?}");
    }
}

/// Loading fails, as damage to `name`, when that file holds `bytes`.
fn damaged(name: &str, bytes: &[u8], reason: &str) {
    let dir = tempdir().unwrap();
    write_set(dir.path());
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    fs::remove_file(dir.path().join(plain)).unwrap();
    write(dir.path(), name, bytes);
    let error = refused(dir.path(), &[name, reason]);
    assert!(matches!(error, DataError::Damaged { .. }), "{error:?}");
}

#[test]
fn wrong_magic_numbers_are_refused() {
    damaged(TRAIN_IMAGES, &labels(&[1, 2]), "2049, not 2051");
    damaged(TEST_LABELS, &images(&[0; 6]), "2051, not 2049");
    damaged(TEST_LABELS, &gzip(&labels(&[4])), "not 2049");
}

#[test]
fn every_truncation_is_refused() {
    for whole in [images(&[7; 12]), labels(&[1, 2])] {
        let name = if whole.len() > 20 { TRAIN_IMAGES } else { TRAIN_LABELS };
        for len in 0..whole.len() {
            damaged(name, &whole[..len], if len < 8 { "too early" } else { "" });
        }
    }
    let zipped = gzip(&images(&[7; 12]));
    for len in 0..zipped.len() {
        damaged("train-images-idx3-ubyte.gz", &zipped[..len], "");
    }
}

#[test]
fn damaged_gzip_is_refused() {
    let mut zipped = gzip(&images(&(0..12).collect::<Vec<u8>>()));
    let checksum = zipped.len() - 8;
    zipped[checksum] ^= 1;
    damaged("train-images-idx3-ubyte.gz", &zipped, "cannot be unpacked");
    damaged("train-images-idx3-ubyte.gz", &images(&[7; 12]), "cannot be unpacked");
}

#[test]
fn what_does_not_fit_the_header_is_refused() {
    damaged(TRAIN_IMAGES, &images(&[7; 13]), "more than the 12 bytes");
    damaged(TRAIN_IMAGES, &idx(2051, &[u32::MAX; 3], &[7; 12]), "states sizes");
    // A thousandth of it, gzipped, would fill the memory.
    damaged(TRAIN_IMAGES, &idx(2051, &[12_000_000, 28, 28], &[7; 12]), "more than 8 GiB");
    let huge = idx(2051, &[10_000_000, 28, 28], &[7; 12]);
    damaged(TRAIN_IMAGES, &huge, "12 of the 7840000000 bytes");
    damaged(TRAIN_IMAGES, &idx(2051, &[2, 0, 3], &[]), "no pixels");
    damaged(TRAIN_LABELS, &labels(&[1, 2, 3]), "3 labels for 2 images");
}

#[test]
fn labels_and_sizes_are_checked() {
    let dir = tempdir().unwrap();
    write_set(dir.path());
    write(dir.path(), TRAIN_LABELS, &labels(&[9, 10]));
    let error = refused(dir.path(), &[TRAIN_LABELS, "example 1", "label 10", "0 to 9"]);
    assert!(matches!(error, DataError::Damaged { .. }));

    write_set(dir.path());
    write(dir.path(), TEST_IMAGES, &idx(2051, &[1, 3, 2], &[0; 6]));
    refused(dir.path(), &[TEST_IMAGES, "2×3×1", "3×2×1"]);

    write_set(dir.path());
    write(dir.path(), TEST_IMAGES, &idx(2051, &[0, 2, 3], &[]));
    write(dir.path(), TEST_LABELS, &labels(&[]));
    let error = refused(dir.path(), &[TEST_IMAGES]);
    assert!(matches!(error, DataError::NoImages { .. }));
}
