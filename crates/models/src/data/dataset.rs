//! Data sets: images, text or ratings.

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
    /// The images, the text or the ratings.
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

    /// The images, if it holds images.
    pub fn images(&self) -> Option<&ImageSet> {
        match &self.content {
            Content::Images(images) => Some(images),
            Content::Text(_) | Content::Ratings(_) => None,
        }
    }

    /// The text, if it holds text.
    pub fn text(&self) -> Option<&Text> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Images(_) | Content::Ratings(_) => None,
        }
    }

    /// The task that models learn from it.
    pub fn task(&self) -> TaskKind {
        match &self.content {
            Content::Images(images) if images.train.is_masked() => TaskKind::Segmentation,
            Content::Images(_) => TaskKind::Images,
            Content::Text(_) => TaskKind::Text,
            Content::Ratings(_) => TaskKind::Ratings,
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
