//! Windows moved over feature maps.

/// The square window that a convolution or a pooling moves over feature maps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Its rows and columns.
    pub(crate) kernel: usize,
    /// The stride, in rows and columns.
    pub(crate) stride: usize,
    /// The padding, in rows and columns, less than the kernel: zeros for a convolution, −∞ for
    /// max-pooling.
    pub(crate) padding: usize,
}

impl Window {
    /// A window at every place inside the maps, without padding.
    pub(crate) fn of(kernel: usize) -> Self {
        Self { kernel, stride: 1, padding: 0 }
    }

    /// A window with padding, so only the stride shrinks the maps.
    pub(crate) fn same(kernel: usize) -> Self {
        Self { padding: kernel / 2, ..Self::of(kernel) }
    }

    /// Windows that do not overlap.
    pub(crate) fn square(kernel: usize) -> Self {
        Self::of(kernel).by(kernel)
    }

    /// The same window with another stride.
    pub(crate) fn by(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// The number of its positions along this length.
    pub(crate) fn places(self, length: usize) -> usize {
        (length + 2 * self.padding - self.kernel) / self.stride + 1
    }
}
