//! CIFAR-10 in its binary version: records of one label byte and 3 × 32 × 32 pixel bytes, red plane
//! first.

use std::path::Path;

use super::files::Checksums;
use super::images::check_labels;
use super::{DataError, Images};

/// The six files, the test batch last.
pub(super) const FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

const CLASSES: usize = 10;
const PIXELS: usize = 3 * 32 * 32;
const RECORD: usize = 1 + PIXELS;

pub(super) fn load(dir: &Path, sums: &mut Checksums) -> Result<(Images, Images), DataError> {
    let (train, test) = FILES.split_at(5);
    Ok((read(dir, train, sums)?, read(dir, test, sums)?))
}

fn read(dir: &Path, names: &[&str], sums: &mut Checksums) -> Result<Images, DataError> {
    let mut images = Images {
        channels: 3,
        height: 32,
        width: 32,
        classes: CLASSES,
        pixels: Vec::new(),
        labels: Vec::new(),
    };
    for &name in names {
        append(dir, name, sums, &mut images)?;
    }
    Ok(images)
}

fn append(
    dir: &Path,
    name: &str,
    sums: &mut Checksums,
    images: &mut Images,
) -> Result<(), DataError> {
    let path = dir.join(name);
    if !path.is_file() {
        return Err(DataError::MissingFile { path: dir.to_owned(), file: name.to_owned() });
    }
    let bytes = sums.read(dir, name)?;
    if bytes.is_empty() {
        return Err(DataError::NoImages { path });
    }
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() {
        let reason =
            format!("{} bytes are not a whole number of {RECORD}-byte records", bytes.len());
        return Err(DataError::damaged(&path, reason));
    }
    check_labels(&path, records.iter().map(|record| record[0]), CLASSES)?;
    for record in records {
        images.labels.push(record[0].into());
        images.pixels.extend_from_slice(&record[1..]);
    }
    Ok(())
}
