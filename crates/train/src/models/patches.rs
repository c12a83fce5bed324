//! The patches of an image that a convolution multiplies with its kernel.

/// A square kernel moved over an image, one place at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patches {
    /// Rows and columns of the kernel.
    pub(super) kernel: usize,
    /// Zeros around the image.
    pub(super) padding: usize,
    /// Rows of the image.
    pub(super) height: usize,
    /// Columns of the image.
    pub(super) width: usize,
}

impl Patches {
    /// The rows and columns of places that the kernel takes.
    pub(super) fn places(&self) -> [usize; 2] {
        [self.height, self.width].map(|length| length + 2 * self.padding + 1 - self.kernel)
    }

    /// For each plane of an image (and image after image), kernel row and kernel column, what lies
    /// under it at each place: `[planes · kernel · kernel, rows · columns]`, the matrix that turns
    /// convolution into multiplication.
    pub(super) fn lay_out(&self, planes: &[f32]) -> Vec<f32> {
        let [rows, columns] = self.places();
        let plane = self.height * self.width;
        let offsets = self.kernel * self.kernel;
        let mut out = vec![0.0; planes.len() / plane * offsets * rows * columns];
        let mut out_planes = out.chunks_exact_mut(rows * columns);
        for image in planes.chunks_exact(plane) {
            for offset in 0..offsets {
                let (dy, dx) = (offset / self.kernel, offset % self.kernel);
                let Some(out) = out_planes.next() else { return Vec::new() };
                self.copy_shifted(image, [dy, dx], out, columns);
            }
        }
        out
    }

    /// Writes the plane moved by an offset within the kernel; what lies outside stays zero.
    fn copy_shifted(&self, image: &[f32], [dy, dx]: [usize; 2], out: &mut [f32], columns: usize) {
        // Columns x of the result with 0 <= x + dx - padding < width.
        let from = self.padding.saturating_sub(dx);
        let to = columns.min((self.width + self.padding).saturating_sub(dx));
        for (y, out) in out.chunks_exact_mut(columns).enumerate() {
            let source = (y + dy).checked_sub(self.padding).filter(|&row| row < self.height);
            if let Some(row) = source
                && from < to
            {
                let start = row * self.width + from + dx - self.padding;
                out[from..to].copy_from_slice(&image[start..][..to - from]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_without_padding() {
        let patches = Patches { kernel: 2, padding: 0, height: 2, width: 3 };
        assert_eq!(patches.places(), [1, 2]);
        let found = patches.lay_out(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(found, [1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]);
    }

    #[test]
    fn padding_is_zero_and_planes_follow_each_other() {
        let patches = Patches { kernel: 3, padding: 1, height: 2, width: 2 };
        assert_eq!(patches.places(), [2, 2]);
        let found = patches.lay_out(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(found.len(), 2 * 9 * 4);
        assert_eq!(found[..4], [0.0, 0.0, 0.0, 1.0], "up and left");
        assert_eq!(found[16..20], [1.0, 2.0, 3.0, 4.0], "the middle");
        assert_eq!(found[20..24], [2.0, 0.0, 4.0, 0.0], "right");
        assert_eq!(found[68..], [8.0, 0.0, 0.0, 0.0], "down and right, second plane");
    }
}
