//! The shape of images, and the number of classes.

use std::fmt;

/// The shape of a classification task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageShape {
    /// Channels of an image.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Number of classes.
    pub classes: usize,
}

impl ImageShape {
    /// Channels, height and width.
    pub(super) fn maps(&self) -> [usize; 3] {
        [self.channels, self.height, self.width]
    }

    /// Values in an image.
    pub fn elements(&self) -> usize {
        self.channels * self.height * self.width
    }
}

/// Width, height and channels.
impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.width, self.height, self.channels)
    }
}
