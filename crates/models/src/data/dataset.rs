//! Data sets: images, text, ratings, or data of another crate.

use std::any::Any;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::files::hex;
use super::{Images, Ratings, Text};
use crate::TaskKind;

/// A data set: its content, name and checksum.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The name of the folder, of the archive or of the generated set.
    pub name: String,
    /// SHA-256, in hexadecimal, over the files read (see [`load`](super::load())) or the bytes
    /// generated.
    pub checksum: String,
    /// The images, the text, the ratings or the data of another crate.
    pub content: Content,
}

/// The content of a data set.
#[derive(Debug, Clone)]
pub enum Content {
    /// Labelled images.
    Images(ImageSet),
    /// A text as a sequence of tokens.
    Text(Text),
    /// The items that users have taken.
    Ratings(Ratings),
    /// Data of another crate, made by [`Dataset::of_crate`].
    Other(Arc<dyn Any + Send + Sync>),
}

/// Training and test images, of the same shape and classes.
#[derive(Debug, Clone)]
pub struct ImageSet {
    /// The training images.
    pub train: Images,
    /// The test images.
    pub test: Images,
    /// Mean of each channel over the training images, with pixels from 0 to 1.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel over the training images, with pixels from 0 to 1; 1 for
    /// a constant channel.
    pub std: Vec<f32>,
}

impl ImageSet {
    /// An image set with the moments of the training images.
    pub fn new(train: Images, test: Images) -> Self {
        let (mean, std) = (0..train.channels).map(|channel| moments(&train, channel)).unzip();
        Self { train, test, mean, std }
    }
}

impl Dataset {
    /// A generated data set, whose checksum is over pixels and labels; `bytes` writes a label.
    pub(super) fn generated<const N: usize>(
        name: &str,
        train: Images,
        test: Images,
        bytes: fn(u16) -> [u8; N],
    ) -> Self {
        let mut sum = Sha256::new();
        for part in [&train, &test] {
            sum.update(&part.pixels);
            part.labels.iter().for_each(|&label| sum.update(bytes(label)));
        }
        let content = Content::Images(ImageSet::new(train, test));
        Self { name: name.to_owned(), checksum: hex(&sum.finalize()), content }
    }

    /// Data of another crate. The checksum is over `bytes`, which differ if the data differ: runs
    /// compare it between ranks, and with the checkpoints and records of earlier runs.
    pub fn of_crate<T: Any + Send + Sync>(name: &str, bytes: &[u8], data: T) -> Self {
        let checksum = hex(&Sha256::digest(bytes));
        Self { name: name.to_owned(), checksum, content: Content::Other(Arc::new(data)) }
    }

    /// The data of another crate, if they have this type.
    pub fn other<T: Any>(&self) -> Option<&T> {
        match &self.content {
            Content::Other(data) => data.downcast_ref(),
            _ => None,
        }
    }

    /// The images, if it holds images.
    pub fn images(&self) -> Option<&ImageSet> {
        match &self.content {
            Content::Images(images) => Some(images),
            _ => None,
        }
    }

    /// The text, if it holds text.
    pub fn text(&self) -> Option<&Text> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The task that models learn from it.
    pub fn task(&self) -> TaskKind {
        match &self.content {
            Content::Images(images) if images.train.is_masked() => TaskKind::Segmentation,
            Content::Images(_) => TaskKind::Images,
            Content::Text(_) => TaskKind::Text,
            Content::Ratings(_) => TaskKind::Ratings,
            Content::Other(_) => TaskKind::Other,
        }
    }
}

/// Mean and standard deviation of a channel, summed exactly in integers.
fn moments(images: &Images, channel: usize) -> (f32, f32) {
    let plane = images.height * images.width;
    let (mut sum, mut squares) = (0u128, 0u128);
    for image in images.pixels.chunks_exact(images.channels * plane) {
        let pixels = &image[channel * plane..][..plane];
        sum += u128::from(pixels.iter().map(|&x| u64::from(x)).sum::<u64>());
        squares += u128::from(pixels.iter().map(|&x| u64::from(x) * u64::from(x)).sum::<u64>());
    }
    let count = (images.len() * plane) as u128;
    let mean = sum as f64 / count as f64;
    let variance = (count * squares - sum * sum) as f64 / (count as f64 * count as f64);
    let std = if variance > 0.0 { variance.sqrt() / 255.0 } else { 1.0 };
    ((mean / 255.0) as f32, std as f32)
}
