use std::fs;
use std::path::Path;

use tempfile::tempdir;

use super::{image_set, refused, write};
use crate::data::{DataError, load};

/// A record whose red, green and blue planes are filled with three values.
fn record(label: u8, colour: [u8; 3]) -> Vec<u8> {
    let mut bytes = vec![label];
    colour.into_iter().for_each(|value| bytes.extend([value; 1024]));
    bytes
}

/// Five batches of one image, labelled 1 to 5, and two test images.
pub(super) fn write_set(dir: &Path) {
    for batch in 1..=5 {
        write(dir, &format!("data_batch_{batch}.bin"), &record(batch, [batch, 100, 200]));
    }
    let test = [record(9, [1, 2, 3]), record(0, [4, 5, 6])].concat();
    write(dir, "test_batch.bin", &test);
}

#[test]
fn batches_load_in_order() {
    let dir = tempdir().unwrap();
    let dir = dir.path().join("cifar-10-batches-bin");
    write_set(&dir);
    let data = load(&dir).unwrap();
    assert_eq!(data.name, "cifar-10-batches-bin");
    assert_eq!((image_set(&data).train.shape(), image_set(&data).train.classes), ([3, 32, 32], 10));
    assert_eq!(image_set(&data).train.labels, [1, 2, 3, 4, 5]);
    assert_eq!(image_set(&data).test.labels, [9, 0]);
    assert_eq!(image_set(&data).train.image(3)[..1024], [4; 1024]);
    assert_eq!(image_set(&data).train.image(3)[1024..2048], [100; 1024]);
    assert_eq!(image_set(&data).test.image(1)[2048..], [6; 1024]);
    // Red is 1 to 5, mean 3 and variance 2; green and blue never vary.
    let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-6, "{found}");
    close(image_set(&data).mean[0], 3.0 / 255.0);
    close(image_set(&data).std[0], 2.0f32.sqrt() / 255.0);
    close(image_set(&data).mean[1], 100.0 / 255.0);
    close(image_set(&data).std[1], 1.0);
}

#[test]
fn faulty_batches_are_refused() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    write_set(dir);
    write(dir, "data_batch_3.bin", &record(3, [0; 3])[..3072]);
    let error = refused(dir, &["data_batch_3.bin", "3073-byte records"]);
    assert!(matches!(error, DataError::Damaged { .. }));

    write(dir, "data_batch_3.bin", &[record(3, [0; 3]), record(10, [0; 3])].concat());
    let error = refused(dir, &["data_batch_3.bin", "example 1", "label 10"]);
    assert!(matches!(error, DataError::Damaged { .. }));

    write(dir, "data_batch_3.bin", &[]);
    let error = refused(dir, &["data_batch_3.bin"]);
    assert!(matches!(error, DataError::NoImages { .. }));

    fs::remove_file(dir.join("data_batch_3.bin")).unwrap();
    let error = refused(dir, &["data_batch_3.bin", "fetch"]);
    assert!(matches!(error, DataError::MissingFile { .. }));
}
