//! The layout of a few images for convolution. At every position of a kernel, the pixel under a
//! given kernel element has the same offset from the position.

use super::super::window::Window;
use super::used::Used;
use crate::lanes::LANES;

/// Padded images, one below the other, in planes.
///
/// A kernel of stride s meets every s-th pixel with the same element. So each plane of an image
/// becomes s² planes, called *phases* here: space-to-depth with blocks of s × s pixels, after
/// padding. A phase has the pixels of every s-th row and column. In the phases, a kernel moves by
/// one.
///
/// Neighbours share the zeros around them: a row and the next row, an image and the next image. The
/// positions of the kernel are numbered row after row. A position is unused if the kernel would
/// leave its row or its image there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack {
    window: Window,
    height: usize,
    width: usize,
    /// Elements from a row of a phase to the next.
    pitch: usize,
    /// Rows from an image to the next.
    rows: usize,
    /// Images in a stack.
    pub(super) images: usize,
    /// Positions, used or not, with a vector after the last used one.
    pub(super) positions: usize,
    /// Elements of one phase of all images.
    plane: usize,
}

impl Stack {
    /// The positions of a stack of small images: enough for the kernels' inner loops, while a plane
    /// stays in the first-level cache.
    const TARGET: usize = 1024;

    /// Stacks of images of this size.
    pub(super) fn new(window: Window, height: usize, width: usize) -> Self {
        let [rows, pitch] = [height, width].map(|length| period(window, length));
        let images = (Self::TARGET / (rows * pitch)).max(1);
        let last = window.places(height);
        let positions = ((images - 1) * rows + last) * pitch + LANES;
        // The last element of the kernel at the last position.
        let reach = (window.kernel - 1) / window.stride * (pitch + 1);
        let plane = (positions + reach).max(images * rows * pitch);
        Self { window, height, width, pitch, rows, images, positions, plane }
    }

    /// Rows and columns of the used positions.
    pub(super) fn places(&self) -> [usize; 2] {
        [self.height, self.width].map(|length| self.window.places(length))
    }

    /// The used positions.
    pub(super) fn used(&self) -> Used {
        let [rows, columns] = self.places();
        let of_image = |image| (0..rows).map(move |row| self.start(image, row));
        Used { rows: (0..self.images).flat_map(of_image).collect(), columns }
    }

    /// Pixels of a plane of one image.
    pub(super) fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Elements of the phases of `planes` planes of all images.
    pub(super) fn elements(&self, planes: usize) -> usize {
        planes * self.window.stride * self.window.stride * self.plane
    }

    /// The offset of each term of an output value from the position of the kernel: plane by plane,
    /// row by row of the kernel.
    pub(super) fn offsets(&self, planes: usize) -> Vec<usize> {
        let Window { kernel, stride, .. } = self.window;
        let offset = |term: usize| {
            let (plane, y, x) = (term / (kernel * kernel), term / kernel % kernel, term % kernel);
            let phase = (plane * stride + y % stride) * stride + x % stride;
            phase * self.plane + y / stride * self.pitch + x / stride
        };
        (0..planes * kernel * kernel).map(offset).collect()
    }

    /// Copies images, each of `planes` planes, to their phases (space-to-depth). The zeros around
    /// the images stay.
    pub(super) fn pad(&self, images: &[f32], planes: usize, out: &mut [f32]) {
        let lines = lines(self.window, self.height, self.width);
        let phases = self.window.stride * self.window.stride;
        for (at, plane) in images.chunks_exact(self.pixels()).enumerate() {
            let (image, first) = (at / planes, at % planes * phases);
            for line in &lines {
                let start = (first + line.phase) * self.plane + self.start(image, line.row);
                let out = &mut out[start + line.column..][..line.count];
                if line.stride == 1 {
                    out.copy_from_slice(&plane[line.pixel..][..line.count]);
                } else {
                    let pixels = plane[line.pixel..].iter().step_by(line.stride);
                    out.iter_mut().zip(pixels).for_each(|(out, pixel)| *out = *pixel);
                }
            }
        }
    }

    /// Copies maps, with a value for each place of the kernel, to their positions. Unused positions
    /// do not change.
    pub(super) fn spread(&self, maps: &[f32], planes: usize, positions: &mut [f32]) {
        let [rows, columns] = self.places();
        for (at, values) in maps.chunks_exact(columns).enumerate() {
            let start = self.position(planes, at / rows, at % rows);
            positions[start..start + columns].copy_from_slice(values);
        }
    }

    /// The reverse of [`spread`](Self::spread).
    pub(super) fn collect(&self, positions: &[f32], planes: usize, maps: &mut [f32]) {
        let [rows, columns] = self.places();
        for (at, values) in maps.chunks_exact_mut(columns).enumerate() {
            let start = self.position(planes, at / rows, at % rows);
            values.copy_from_slice(&positions[start..start + columns]);
        }
    }

    /// Copies positions of a stack of stride 1 to the pixels of a line. The row and column of the
    /// line are the row and column of a place; its phase is one of the planes from `first` on.
    /// Pixels of unused places do not change.
    pub(super) fn copy_line(
        &self,
        positions: &[f32],
        image: usize,
        first: usize,
        line: Line,
        pixels: &mut [f32],
    ) {
        let [rows, columns] = self.places();
        let count = line.count.min(columns.saturating_sub(line.column));
        if line.row >= rows || count == 0 {
            return;
        }
        let start = (first + line.phase) * self.positions + self.start(image, line.row);
        let values = &positions[start + line.column..][..count];
        if line.stride == 1 {
            pixels[line.pixel..][..count].copy_from_slice(values);
        } else {
            let pixels = pixels[line.pixel..].iter_mut().step_by(line.stride);
            pixels.zip(values).for_each(|(pixel, value)| *pixel = *value);
        }
    }

    /// The first position of a row of a map. Maps are numbered image after image.
    fn position(&self, planes: usize, map: usize, row: usize) -> usize {
        map % planes * self.positions + self.start(map / planes, row)
    }

    /// The start of an image's row in a phase, and in the positions.
    fn start(&self, image: usize, row: usize) -> usize {
        (image * self.rows + row) * self.pitch
    }
}

/// Pixels of an image's row that are neighbours in one phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    /// The number of the phase.
    pub(super) phase: usize,
    /// The row in the phase.
    pub(super) row: usize,
    /// The column of the first in the phase.
    pub(super) column: usize,
    /// The position of the first pixel in the image.
    pub(super) pixel: usize,
    /// The distance between two pixels in the image.
    pub(super) stride: usize,
    /// The number of pixels.
    pub(super) count: usize,
}

/// All pixels of an image that a kernel of this size can meet.
pub(super) fn lines(window: Window, height: usize, width: usize) -> Vec<Line> {
    let used = 0..window.stride.min(window.kernel);
    let phases = used.clone().flat_map(|y| used.clone().map(move |x| [y, x]));
    let of_phase = |[y, x]: [usize; 2]| {
        let ([row, top], [column, left]) = (first(window, y), first(window, x));
        let count = width.saturating_sub(left).div_ceil(window.stride);
        (top..height).step_by(window.stride).enumerate().map(move |(at, pixel)| Line {
            phase: y * window.stride + x,
            row: row + at,
            column,
            pixel: pixel * width + left,
            stride: window.stride,
            count,
        })
    };
    phases.flat_map(of_phase).filter(|line| line.count > 0).collect()
}

/// The first element of a phase that is a pixel, and the pixel's position, along one dimension.
fn first(window: Window, phase: usize) -> [usize; 2] {
    let element = window.padding.saturating_sub(phase).div_ceil(window.stride);
    [element, element * window.stride + phase - window.padding]
}

/// Elements from a row or an image to the next, so no position meets a pixel of the next instead of
/// a zero.
fn period(window: Window, length: usize) -> usize {
    let Window { kernel, stride, padding } = window;
    let places = window.places(length);
    let of_phase = |phase: usize| {
        let pixels = (length + padding).saturating_sub(phase).div_ceil(stride);
        let met = places + (kernel - 1 - phase) / stride;
        pixels.max(met.saturating_sub(first(window, phase)[0]))
    };
    (0..stride.min(kernel)).map(of_phase).fold(places, usize::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(kernel: usize, stride: usize, padding: usize) -> Window {
        Window { kernel, stride, padding }
    }

    fn counted(to: usize) -> Vec<f32> {
        (1..=to).map(|value| value as f32).collect()
    }

    #[test]
    fn neighbours_share_their_zeros() {
        let stack = Stack::new(window(3, 1, 1), 2, 2);
        let mut out = vec![0.0; stack.elements(2)];
        stack.pad(&counted(16), 2, &mut out);
        let first = [
            0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 9.0, 10.0, 0.0, 11.0,
            12.0, 0.0, 0.0, 0.0,
        ];
        assert_eq!(out[..21], first);
        assert_eq!(out[stack.plane + 4..][..5], [5.0, 6.0, 0.0, 7.0, 8.0], "the second plane");
        assert_eq!(stack.places(), [2, 2]);
        assert_eq!(stack.offsets(1), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(stack.offsets(2)[9], stack.plane);
    }

    #[test]
    fn each_phase_has_every_second_pixel() {
        let stack = Stack::new(window(3, 2, 1), 4, 4);
        let mut out = vec![0.0; stack.elements(1)];
        stack.pad(&counted(16), 1, &mut out);
        let phase = |at: usize| &out[at * stack.plane..][..9];
        assert_eq!(stack.pitch, 3);
        assert_eq!(phase(0), [0.0, 0.0, 0.0, 0.0, 6.0, 8.0, 0.0, 14.0, 16.0]);
        assert_eq!(phase(1), [0.0, 0.0, 0.0, 5.0, 7.0, 0.0, 13.0, 15.0, 0.0]);
        assert_eq!(phase(2), [0.0, 2.0, 4.0, 0.0, 10.0, 12.0, 0.0, 0.0, 0.0]);
        assert_eq!(phase(3), [1.0, 3.0, 0.0, 9.0, 11.0, 0.0, 0.0, 0.0, 0.0]);
        let second = stack.plane;
        let row = [0, second, 1];
        assert_eq!(stack.offsets(1)[..3], row, "the kernel's first row");
        assert_eq!(stack.offsets(1)[6..], row.map(|offset| offset + 3), "its last");
    }

    #[test]
    fn positions_of_a_kernel_without_padding() {
        let stack = Stack::new(window(2, 1, 0), 3, 3);
        assert_eq!(stack.places(), [2, 2]);
        let maps = counted(8);
        let mut positions = vec![0.0; stack.positions];
        stack.spread(&maps, 1, &mut positions);
        let first = [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 0.0, 7.0, 8.0];
        assert_eq!(positions[..14], first);
        let mut back = vec![f32::NAN; 8];
        stack.collect(&positions, 1, &mut back);
        assert_eq!(back, maps);
    }

    #[test]
    fn small_images_share_a_stack() {
        assert_eq!(Stack::new(window(3, 1, 1), 32, 32).images, 1);
        assert_eq!(Stack::new(window(3, 1, 1), 8, 8).images, 12);
    }
}
