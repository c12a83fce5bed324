//! The sizes of a convolution.

use super::super::maps::Maps;
use super::super::window::Window;

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shapes {
    pub(super) batch: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) window: Window,
    pub(super) height: usize,
    pub(super) width: usize,
}

impl Shapes {
    pub(super) fn new(images: &Maps, to: usize, window: Window) -> Self {
        assert!(window.padding < window.kernel, "a kernel lies on a pixel at each of its places");
        let [from, height, width] = images.shape;
        Self { batch: images.batch(), from, to, window, height, width }
    }

    /// Rows and columns of an output map.
    pub(super) fn places(&self) -> [usize; 2] {
        [self.height, self.width].map(|length| self.window.places(length))
    }
}
