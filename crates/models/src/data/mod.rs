//! Data sets of labelled images, of text and of ratings: standard files, recognised by what they are, and a
//! generated set of images that needs none.
//!
//! - [`load`] reads MNIST idx files, CIFAR-10 binary batches, image folders, the Penn Treebank's words and plain text
//!   (folders and text also from one archive), images with masks, and MovieLens' ratings; [`find`] looks for a data set
//!   by name; [`catalogue`] lists the names.
//! - [`embedded`] draws distorted digits from a seed, [`frames`] features of thousands of classes.
//! - [`normalise`], [`augment`] and [`shift`] turn an image's bytes into the floats a model sees.

mod archive;
mod augment;
mod catalogue;
mod cifar;
mod digits;
mod error;
mod files;
mod folder;
mod frames;
mod idx;
mod load;
mod masks;
mod ratings;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod text;
mod zip;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::models::Task;

pub use augment::{PADDING, SHIFT, augment, normalise, shift};
pub use catalogue::{Known, KnownFile, ROOT_VARIABLE, Verdict, catalogue, find, places};
pub use digits::{embedded, embedded_sized};
pub use error::DataError;
pub use frames::{frames, frames_sized};
pub use load::load;
pub use ratings::{Question, Ratings};
pub use text::{Text, Unit};

/// Images of one size, eight bits a channel, labelled as wholes or pixel by pixel.
#[derive(Clone, PartialEq, Eq)]
pub struct Images {
    /// Channels: 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// Rows of pixels.
    pub height: usize,
    /// Columns of pixels.
    pub width: usize,
    /// Number of classes; labels run from 0 to `classes − 1`.
    pub classes: usize,
    /// Image after image, each channels-first: `channels · height · width` bytes.
    pub pixels: Vec<u8>,
    /// One label an image, or one for each of its pixels.
    pub labels: Vec<u16>,
}

impl Images {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.pixels.len() / (self.channels * self.height * self.width).max(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each pixel has a label.
    pub fn is_masked(&self) -> bool {
        self.labels.len() > self.len()
    }

    /// The labels of these images: one each, or row by row those of their pixels.
    ///
    /// # Panics
    /// If there are no such images.
    pub fn labels_of(&self, images: Range<usize>) -> &[u16] {
        let each = if self.is_masked() { self.height * self.width } else { 1 };
        &self.labels[images.start * each..images.end * each]
    }

    /// Channels, height and width.
    pub fn shape(&self) -> [usize; 3] {
        [self.channels, self.height, self.width]
    }

    /// The bytes of image `index`, channels first.
    ///
    /// # Panics
    /// If there is no such image.
    pub fn image(&self, index: usize) -> &[u8] {
        let size = self.channels * self.height * self.width;
        &self.pixels[index * size..][..size]
    }
}

impl fmt::Debug for Images {
    /// Sizes only: the pixels would fill many screens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Images({} of {}×{}×{}, {} classes)",
            self.len(),
            self.width,
            self.height,
            self.channels,
            self.classes
        )
    }
}

/// A data set: what it holds, and where it comes from.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The name: that of the folder its files lie in, or `digits`.
    pub name: String,
    /// SHA-256, in hexadecimal, over the files read (see [`load`]) or the bytes generated.
    pub checksum: String,
    /// The images or the text.
    pub content: Content,
}

/// What a data set holds.
#[derive(Debug, Clone)]
pub enum Content {
    /// Labelled images.
    Images(ImageSet),
    /// A text as a sequence of tokens.
    Text(Text),
    /// Who has taken what.
    Ratings(Ratings),
}

/// Training and test images, of the same shape and classes.
#[derive(Debug, Clone)]
pub struct ImageSet {
    /// The images to learn from.
    pub train: Images,
    /// The images to measure on.
    pub test: Images,
    /// Mean of each channel over the training images, pixels taken as 0 to 1.
    pub mean: Vec<f32>,
    /// Standard deviation of each channel over the training images, pixels taken as 0 to 1; 1 for a
    /// channel that never varies.
    pub std: Vec<f32>,
}

impl ImageSet {
    /// Images with the moments of the training ones.
    pub fn new(train: Images, test: Images) -> Self {
        let (mean, std) = (0..train.channels).map(|channel| moments(&train, channel)).unzip();
        Self { train, test, mean, std }
    }
}

impl Dataset {
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

    /// What there is to learn.
    pub fn task(&self) -> Task {
        match &self.content {
            Content::Images(images) if images.train.is_masked() => Task::Masks,
            Content::Images(_) => Task::Images,
            Content::Text(_) => Task::Text,
            Content::Ratings(_) => Task::Ratings,
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

fn check_labels(
    path: &Path,
    labels: impl Iterator<Item = u8>,
    classes: usize,
) -> Result<(), DataError> {
    match labels.enumerate().find(|&(_, label)| usize::from(label) >= classes) {
        Some((index, label)) => {
            Err(DataError::Label { path: path.to_owned(), index, label, classes })
        }
        None => Ok(()),
    }
}
