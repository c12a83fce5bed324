//! The patches of an image that a convolution multiplies with its kernel.

/// A square kernel moved over an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patches {
    /// Rows and columns of the kernel.
    pub(super) kernel: usize,
    /// The stride of the kernel.
    pub(super) stride: usize,
    /// Zeros around the image.
    pub(super) padding: usize,
    /// Rows of the image.
    pub(super) height: usize,
    /// Columns of the image.
    pub(super) width: usize,
}

/// The pixels of a plane under one element of the kernel, at one row of its positions: positions `from..to` are inside
/// the plane, the first of them at pixel `start`.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: usize,
    to: usize,
    start: usize,
}

impl Patches {
    /// The rows and columns of the kernel's positions.
    pub(super) fn places(&self) -> [usize; 2] {
        [self.height, self.width]
            .map(|length| (length + 2 * self.padding - self.kernel) / self.stride + 1)
    }

    /// Writes for each plane, kernel row and kernel column the pixel at each position of the kernel: `[planes · kernel
    /// · kernel, rows · columns]`, the im2col matrix.
    pub(super) fn lay_out(&self, planes: &[f32], out: &mut [f32]) {
        self.for_each(planes.len(), out.len(), |plane, offset, place| {
            self.copy(&planes[plane], offset, &mut out[place]);
        });
    }

    /// The adjoint of [`lay_out`](Self::lay_out): adds each value to where it was copied from.
    pub(super) fn add_back(&self, patches: &[f32], planes: &mut [f32]) {
        self.for_each(planes.len(), patches.len(), |plane, offset, place| {
            self.add(&patches[place], offset, &mut planes[plane]);
        });
    }

    /// Visits plane after plane and, of each, element after element of the kernel.
    fn for_each(
        &self,
        planes: usize,
        patches: usize,
        mut visit: impl FnMut(std::ops::Range<usize>, [usize; 2], std::ops::Range<usize>),
    ) {
        let (plane, offsets) = (self.height * self.width, self.kernel * self.kernel);
        let [rows, columns] = self.places();
        let places = rows * columns;
        assert_eq!(patches * plane, planes * offsets * places, "patches have another size");
        for at in 0..planes / plane {
            for offset in 0..offsets {
                let shift = [offset / self.kernel, offset % self.kernel];
                let start = (at * offsets + offset) * places;
                visit(at * plane..(at + 1) * plane, shift, start..start + places);
            }
        }
    }

    /// The plane shifted by an offset within the kernel; pixels outside are zero.
    fn copy(&self, plane: &[f32], offset: [usize; 2], out: &mut [f32]) {
        let [_, columns] = self.places();
        if self.stride == 1 && columns == self.width {
            return self.copy_whole(plane, offset, out);
        }
        for (y, out) in out.chunks_exact_mut(columns).enumerate() {
            let Some(run) = self.run(y, offset) else {
                out.fill(0.0);
                continue;
            };
            out[..run.from].fill(0.0);
            out[run.to..].fill(0.0);
            let out = &mut out[run.from..run.to];
            if self.stride == 1 {
                out.copy_from_slice(&plane[run.start..][..out.len()]);
            } else {
                let source = plane[run.start..].iter().step_by(self.stride);
                out.iter_mut().zip(source).for_each(|(out, value)| *out = *value);
            }
        }
    }

    /// As [`copy`](Self::copy) for stride 1 with equal input and output sizes: copies all rows at once, then sets
    /// pixels from a neighbouring row to zero.
    fn copy_whole(&self, plane: &[f32], [dy, dx]: [usize; 2], out: &mut [f32]) {
        let (ahead, behind) = (dy * self.width + dx, self.padding * (self.width + 1));
        let head = behind.saturating_sub(ahead).min(out.len());
        let tail = ahead.saturating_sub(behind).min(out.len());
        let (start, length) = (tail, out.len() - head - tail);
        out[..head].fill(0.0);
        out[head..head + length].copy_from_slice(&plane[start..start + length]);
        out[head + length..].fill(0.0);
        let left = self.padding.saturating_sub(dx);
        let right = (self.width + self.padding).saturating_sub(dx).min(self.width);
        if left > 0 || right < self.width {
            for row in out.chunks_exact_mut(self.width) {
                row[..left.min(self.width)].fill(0.0);
                row[right..].fill(0.0);
            }
        }
    }

    fn add(&self, moved: &[f32], offset: [usize; 2], plane: &mut [f32]) {
        for (y, moved) in moved.chunks_exact(self.places()[1]).enumerate() {
            let Some(run) = self.run(y, offset) else { continue };
            let moved = &moved[run.from..run.to];
            if self.stride == 1 {
                let sums = &mut plane[run.start..][..moved.len()];
                sums.iter_mut().zip(moved).for_each(|(sum, value)| *sum += value);
            } else {
                let sums = plane[run.start..].iter_mut().step_by(self.stride);
                sums.zip(moved).for_each(|(sum, value)| *sum += value);
            }
        }
    }

    /// The pixels under element `[dy, dx]` of the kernel at row `y` of its positions, if any.
    fn run(&self, y: usize, [dy, dx]: [usize; 2]) -> Option<Run> {
        let row = (y * self.stride + dy).checked_sub(self.padding)?;
        // Places x with 0 <= x·stride + dx − padding < width.
        let from = self.padding.saturating_sub(dx).div_ceil(self.stride);
        let to = (self.width + self.padding).saturating_sub(dx).div_ceil(self.stride);
        let to = to.min(self.places()[1]);
        (row < self.height && from < to).then(|| {
            let column = from * self.stride + dx - self.padding;
            Run { from, to, start: row * self.width + column }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay_out(patches: Patches, planes: &[f32]) -> Vec<f32> {
        let places: usize = patches.places().iter().product();
        let offsets = patches.kernel * patches.kernel;
        let size = planes.len() / (patches.height * patches.width) * offsets * places;
        let mut out = vec![f32::NAN; size];
        patches.lay_out(planes, &mut out);
        out
    }

    #[test]
    fn patches_without_padding() {
        let patches = Patches { kernel: 2, stride: 1, padding: 0, height: 2, width: 3 };
        assert_eq!(patches.places(), [1, 2]);
        let found = lay_out(patches, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(found, [1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]);
    }

    #[test]
    fn padding_is_zero_and_planes_follow_each_other() {
        let patches = Patches { kernel: 3, stride: 1, padding: 1, height: 2, width: 2 };
        assert_eq!(patches.places(), [2, 2]);
        let found = lay_out(patches, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(found.len(), 2 * 9 * 4);
        assert_eq!(found[..4], [0.0, 0.0, 0.0, 1.0], "up and left");
        assert_eq!(found[16..20], [1.0, 2.0, 3.0, 4.0], "the middle");
        assert_eq!(found[20..24], [2.0, 0.0, 4.0, 0.0], "right");
        assert_eq!(found[68..], [8.0, 0.0, 0.0, 0.0], "down and right, second plane");
    }

    #[test]
    fn a_stride_of_two() {
        let patches = Patches { kernel: 3, stride: 2, padding: 1, height: 4, width: 3 };
        assert_eq!(patches.places(), [2, 2]);
        let image: Vec<f32> = (1..=12).map(|value| value as f32).collect();
        let found = lay_out(patches, &image);
        assert_eq!(found[..4], [0.0, 0.0, 0.0, 5.0], "up and left");
        assert_eq!(found[16..20], [1.0, 3.0, 7.0, 9.0], "the middle");
        assert_eq!(found[32..], [5.0, 0.0, 11.0, 0.0], "down and right");
    }

    /// ⟨lay_out(x), y⟩ = ⟨x, add_back(y)⟩, with integers, so that sums are exact.
    #[test]
    fn adding_back_is_the_adjoint() {
        for (kernel, stride, padding) in
            [(2, 1, 0), (3, 1, 1), (5, 1, 2), (3, 2, 1), (5, 3, 2), (1, 2, 0), (1, 1, 0)]
        {
            let patches = Patches { kernel, stride, padding, height: 6, width: 5 };
            let planes: Vec<f32> = (0..60).map(|at| (at * 7 % 11) as f32 - 5.0).collect();
            let laid_out = lay_out(patches, &planes);
            let other: Vec<f32> = (0..laid_out.len()).map(|at| (at * 5 % 13) as f32).collect();
            let mut back = vec![0.0; planes.len()];
            patches.add_back(&other, &mut back);
            let product = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
            assert_eq!(product(&laid_out, &other), product(&planes, &back));
        }
    }
}
