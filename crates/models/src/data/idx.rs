//! MNIST's idx files, gzipped or not.
//!
//! An idx file is a big-endian header (magic number 2049 for labels, 2051 for images; the number of
//! items; for images also rows and columns) and then one byte per element.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::archive::MAX_ALL;
use super::files::{Checksums, content, unreadable};
use super::images::check_labels;
use super::{DataError, Images};

/// The four files, training images first; each may end in `.gz`.
pub(super) const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

const LABELS: u32 = 2049;
const IMAGES: u32 = 2051;
const CLASSES: usize = 10;

pub(super) fn load(dir: &Path, sums: &mut Checksums) -> Result<(Images, Images), DataError> {
    let train = images(dir, FILES[0], FILES[1], sums)?;
    let test = images(dir, FILES[2], FILES[3], sums)?;
    if (train.height, train.width) != (test.height, test.width) {
        let size = |images: &Images| format!("{}×{}×1", images.width, images.height);
        return Err(DataError::ImageSize {
            path: dir.join(FILES[2]),
            found: size(&test),
            expected: size(&train),
        });
    }
    Ok((train, test))
}

fn images(
    dir: &Path,
    images: &str,
    labels: &str,
    sums: &mut Checksums,
) -> Result<Images, DataError> {
    let pixels = Idx::read(dir, images, IMAGES, sums)?;
    let labels = Idx::read(dir, labels, LABELS, sums)?;
    if pixels.items() == 0 {
        return Err(DataError::NoImages { path: pixels.path });
    }
    if pixels.data.is_empty() {
        return Err(DataError::damaged(&pixels.path, "its images have no pixels"));
    }
    if labels.items() != pixels.items() {
        let reason = format!("it has {} labels for {} images", labels.items(), pixels.items());
        return Err(DataError::damaged(&labels.path, reason));
    }
    check_labels(&labels.path, labels.data.iter().copied(), CLASSES)?;
    Ok(Images {
        channels: 1,
        height: pixels.sizes[1],
        width: pixels.sizes[2],
        classes: CLASSES,
        pixels: pixels.data,
        labels: labels.data.into_iter().map(u16::from).collect(),
    })
}

struct Idx {
    path: PathBuf,
    sizes: Vec<usize>,
    data: Vec<u8>,
}

impl Idx {
    fn items(&self) -> usize {
        self.sizes[0]
    }

    fn read(dir: &Path, stem: &str, magic: u32, sums: &mut Checksums) -> Result<Self, DataError> {
        let Some(name) = [stem.to_owned(), format!("{stem}.gz")]
            .into_iter()
            .find(|name| dir.join(name).is_file())
        else {
            let file = format!("{stem} (or {stem}.gz)");
            return Err(DataError::MissingFile { path: dir.to_owned(), file });
        };
        let bytes = sums.read(dir, &name)?;
        let path = dir.join(name);
        let (sizes, data) = parse(&path, content(&path, &bytes), magic)?;
        Ok(Self { path, sizes, data })
    }
}

fn parse(
    path: &Path,
    mut content: impl Read,
    magic: u32,
) -> Result<(Vec<usize>, Vec<u8>), DataError> {
    let mut word = || -> Result<u32, DataError> {
        let mut bytes = [0; 4];
        content.read_exact(&mut bytes).map_err(|e| unreadable(path, &e))?;
        Ok(u32::from_be_bytes(bytes))
    };
    let found = word()?;
    if found != magic {
        let reason = format!("its magic number is {found}, not {magic}");
        return Err(DataError::damaged(path, reason));
    }
    // The magic number's last byte is the number of dimensions.
    let sizes: Vec<usize> =
        (0..magic & 0xff).map(|_| word().map(|w| w as usize)).collect::<Result<_, _>>()?;
    let expected = sizes
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size as u64))
        .filter(|&bytes| bytes <= MAX_ALL)
        .ok_or_else(|| {
            let most = MAX_ALL >> 30;
            DataError::damaged(
                path,
                format!("its header states sizes {sizes:?}, which take more than {most} GiB"),
            )
        })?;
    // Reads one byte more than announced: this detects trailing bytes, and makes gzip verify its
    // checksum. Memory grows with the existing bytes, not with the size in the header.
    let mut data = Vec::new();
    content.take(expected + 1).read_to_end(&mut data).map_err(|e| unreadable(path, &e))?;
    match (data.len() as u64).cmp(&expected) {
        std::cmp::Ordering::Equal => Ok((sizes, data)),
        std::cmp::Ordering::Greater => Err(DataError::damaged(
            path,
            format!("it has more than the {expected} bytes that its header states"),
        )),
        std::cmp::Ordering::Less => {
            let reason =
                format!("it has {} of the {expected} bytes that its header states", data.len());
            Err(DataError::damaged(path, reason))
        }
    }
}
