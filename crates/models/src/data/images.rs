//! Images and their labels.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::DataError;

/// Images of one size with eight bits per channel, with one label per image or per pixel.
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
    /// One label per image, or one per pixel.
    pub labels: Vec<u16>,
}

impl Images {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.pixels.len() / (self.channels * self.height * self.width).max(1)
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each pixel has a label.
    pub fn is_masked(&self) -> bool {
        self.labels.len() > self.len()
    }

    /// The labels of these images: one per image, or one per pixel, row by row.
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

/// Refuses labels of the file at `path` that are not below `classes`.
pub(super) fn check_labels(
    path: &Path,
    labels: impl Iterator<Item = u8>,
    classes: usize,
) -> Result<(), DataError> {
    match labels.enumerate().find(|&(_, label)| usize::from(label) >= classes) {
        Some((index, label)) => {
            let last = classes - 1;
            let reason =
                format!("example {index} has the label {label}, but labels run from 0 to {last}");
            Err(DataError::damaged(path, reason))
        }
        None => Ok(()),
    }
}
