//! Tests on small data sets written to temporary folders, on real ones if present, and on the
//! generated one.

mod catalogue;
mod cifar;
mod digits;
mod folder;
mod idx;
mod layout;
mod masks;
pub(crate) mod pictures;
mod real;
pub(crate) mod real_data;
mod text;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{DataError, Dataset, ImageSet, load};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The error of loading `dir`; its message must contain each of `words`.
fn refused(dir: &Path, words: &[&str]) -> DataError {
    let error = load(dir).expect_err("the data set is faulty");
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
    error
}

fn image_set(data: &Dataset) -> &ImageSet {
    data.images().expect("a data set of images")
}
